//! Is the first line of `criscope explain` right? Faults on real parts, each with what an engineer would have to read.
//!
//! A case says what happens to a pod, which facts the first line must name, and which words would blame another component
//! ([`score`]). A kubelet drives its pod ([`kubelet`]) through criscope to Debian's containerd, or to the built-in
//! runtime, with runc, CNI plugins and a registry, some of which are made to fail ([`parts`]). The suite prints a table.
//! It fails if a line is wrong, or not right: [`KNOWN`] has the cases that are not right yet, and may only become shorter.

mod asked;
mod cases;
mod known;
mod kubelet;
mod machine;
mod never;
mod parts;
mod pod_status;
mod registries;
mod score;
mod spec;
mod stage;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU32;

use futures_util::StreamExt as _;
use futures_util::stream;

use self::known::KNOWN;
use self::score::{Expected, Seen, Verdict};
use self::stage::{Play, Stage};
use crate::prelude::*;

/// Of 60 first lines so many are right in the end.
const RIGHT_OF_60: usize = 57;

/// Cases at a time on one node.
const AT_ONCE: usize = 6;

/// Upper bound of the cases of a group that are played again, alone. A slow machine disturbs more of them.
const REPEATED_CASES: usize = 16;

/// Upper bound of further plays of a case: the first on a calm machine counts.
const REPEATS: usize = 3;

/// A machine whose tasks wait for a CPU for a larger part of the time makes pods slow, and the lines say so.
const CALM_PRESSURE_PERCENT: f32 = 50.0;

/// Longest time that a group waits for a calm machine.
const CALM_WITHIN: Duration = Duration::from_secs(120);

/// Longest time of a case.
const LIMIT: Duration = Duration::from_secs(75);

type Played = Pin<Box<dyn Future<Output = Vec<Seen>> + Send>>;

/// A fault, and what is to be said of it at some times: while it lasts, and afterwards.
struct Case {
    name: String,
    expected: Vec<Expected>,
    play: Box<dyn Fn(Play) -> Played + Send + Sync>,
}

/// A case: what happens, until the line is read; the facts that it must name; the words that it must not.
fn case<F, P>(name: &'static str, says: &'static str, never: &'static str, play: P) -> Case
where
    P: Fn(Play) -> F + Send + Sync + 'static,
    F: Future<Output = String> + Send + 'static,
{
    seen(name, &[(says, never, "")], move |it| {
        let played = play(it);
        async move { [played.await.into()] }
    })
}

/// A case that is looked at several times: for each the facts that the line must name, the words that it must not, and the states
/// that would be right.
fn seen<F, P, const N: usize>(
    name: &'static str,
    expected: &[(&'static str, &'static str, &'static str); N],
    play: P,
) -> Case
where
    P: Fn(Play) -> F + Send + Sync + 'static,
    F: Future<Output = [Seen; N]> + Send + 'static,
{
    let expected = expected
        .iter()
        .map(|&(says, never, state)| Expected { says, never, state });
    Case {
        name: name.to_owned(),
        expected: expected.collect(),
        play: Box::new(move |it| {
            let played = play(it);
            Box::pin(async move { played.await.into() })
        }),
    }
}

/// A row of the table.
#[derive(Clone)]
struct Row {
    name: String,
    pod: String,
    verdict: Verdict,
    line: String,
    missing: Vec<String>,
    took: Duration,
    /// Whether the case was played again, because something else may have disturbed the first play.
    is_repeated: bool,
}

impl Case {
    /// The same with the built-in runtime.
    fn own(mut self) -> Self {
        self.name = format!("own {}", self.name);
        self
    }

    async fn row(&self, stage: &Arc<Stage>) -> Row {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let began = Instant::now();
        let play = Play {
            stage: Arc::clone(stage),
            // A name that no fact is found in.
            pod: format!("web-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        };
        let pod = play.pod.clone();
        let played = tokio::spawn(tokio::time::timeout(LIMIT, (self.play)(play)));
        let broken = match played.await {
            Ok(Ok(seen)) => return self.judged(pod, &seen, began.elapsed()),
            Ok(Err(_)) => format!("not told within {LIMIT:?}"),
            Err(error) => error.to_string(),
        };
        Row {
            verdict: Verdict::Broken,
            line: broken,
            ..self.judged(pod, &[], began.elapsed())
        }
    }

    fn judged(&self, pod: String, seen: &[Seen], took: Duration) -> Row {
        let moments = || self.expected.iter().zip(seen);
        let lines: Vec<_> = seen.iter().map(Seen::to_string).collect();
        let verdicts = moments().map(|(expected, seen)| expected.verdict(seen));
        Row {
            name: self.name.clone(),
            pod,
            verdict: verdicts.max().unwrap_or(Verdict::Broken),
            missing: moments()
                .flat_map(|(expected, seen)| expected.missing(seen))
                .collect(),
            line: lines.join(" / "),
            took,
            is_repeated: false,
        }
    }
}

impl Row {
    /// Not right, unless that is known, or right although it is known not to be.
    fn is_unexpected(&self) -> bool {
        let known = KNOWN.iter().any(|(name, ..)| *name == self.name);
        (self.verdict == Verdict::Right) == known
    }
}

/// Plays a case again, alone, because something else may have been the matter while others were played.
async fn repeat(case: &Case, stage: &Arc<Stage>, row: &mut Row, calm_until: Instant) {
    let registry = stage.registry.name("");
    for _ in 0..REPEATS {
        while cpu_pressure_percent() > CALM_PRESSURE_PERCENT && Instant::now() < calm_until {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stage.kubelet.forget(&row.pod, &registry).await;
        *row = Row {
            is_repeated: true,
            ..case.row(stage).await
        };
        if !row.is_unexpected() || cpu_pressure_percent() < CALM_PRESSURE_PERCENT {
            return;
        }
    }
}

/// Part of the last 10 s in which some task waited for a CPU (`/proc/pressure/cpu`).
fn cpu_pressure_percent() -> f32 {
    let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let average = pressure.split_once("avg10=").map(|(_, rest)| rest);
    let average = average.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    average.unwrap_or(0.0)
}

/// Plays groups of cases on one node, each with so many cases at a time.
async fn play(stage: Arc<Stage>, groups: Vec<(Vec<Case>, usize)>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (cases, at_once) in groups {
        let played = stream::iter(cases.iter().map(|case| case.row(&stage)));
        let mut played: Vec<_> = played.buffer_unordered(at_once).collect().await;
        let calm_until = Instant::now() + CALM_WITHIN;
        let unexpected = played.iter_mut().filter(|row| row.is_unexpected());
        for row in unexpected.take(REPEATED_CASES) {
            let case = cases.iter().find(|case| case.name == row.name);
            repeat(case.expect("the case"), &stage, row, calm_until).await;
        }
        rows.extend(played);
    }
    let ended = tokio::task::spawn_blocking(|| stage.end());
    ended.await.expect("the end of the stage");
    rows
}

/// Only the cases that `CRISCOPE_TRUTH` is part of the name of.
fn chosen(groups: Vec<(Vec<Case>, usize)>) -> Option<Vec<(Vec<Case>, usize)>> {
    let part = std::env::var("CRISCOPE_TRUTH").unwrap_or_default();
    let mut groups = groups;
    for (cases, _) in &mut groups {
        cases.retain(|case| case.name.contains(&part));
    }
    groups
        .iter()
        .any(|(cases, _)| !cases.is_empty())
        .then_some(groups)
}

/// Faults of pods.
fn faults_of_pods() -> Vec<Case> {
    let faults = [
        cases::containers::all(),
        cases::node::all(),
        cases::sandboxes::all(),
        cases::events::all(),
        cases::cni::all(),
        cases::images::all(),
        cases::oci::all(),
        cases::callers::all(),
        cases::requests::all(),
        cases::several::all(),
        cases::starts::all(),
        cases::ends::all(),
    ];
    faults.into_iter().flatten().collect()
}

/// Faults of pods, by the dozen; those of healthy pods first, which would be slow beside others.
async fn of_pods() -> Vec<Row> {
    match chosen(vec![
        (cases::healthy::all(), 2),
        (faults_of_pods(), AT_ONCE),
    ]) {
        Some(groups) => play(Stage::containerd(|_, _| ()).await, groups).await,
        None => Vec::new(),
    }
}

/// Faults that all pods of a node would suffer from, one after the other.
async fn of_nodes() -> Vec<Row> {
    match chosen(vec![
        (cases::runtimes::all(), 1),
        (cases::downtimes::all(), 1),
    ]) {
        Some(groups) => play(Stage::containerd(machine::small_disk).await, groups).await,
        None => Vec::new(),
    }
}

async fn of_the_own_runtime() -> Vec<Row> {
    match chosen(vec![(cases::own::all(), AT_ONCE)]) {
        Some(groups) => play(Stage::own().await, groups).await,
        None => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_line_is_right() {
    let rows = tokio::join!(of_pods(), of_nodes(), of_the_own_runtime());
    let mut rows = [rows.0, rows.1, rows.2].concat();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    judge(&rows);
}

/// Prints the table, and fails as the documentation of the module says.
fn judge(rows: &[Row]) {
    for row in rows {
        let (verdict, name, took) = (row.verdict, &row.name, row.took.as_secs_f32());
        println!("{verdict:<7} {name:<44} {took:4.1} s  {}", row.line);
        if verdict != Verdict::Right {
            println!("{:<61}missing: {:?}", "", row.missing);
        }
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let all = [
        Verdict::Right,
        Verdict::Partly,
        Verdict::Silent,
        Verdict::Wrong,
        Verdict::Broken,
    ];
    let counts = all.map(|verdict| format!("{} {verdict}", count(verdict)));
    let repeated = rows.iter().filter(|row| row.is_repeated).count();
    let counts = counts.join(", ");
    println!(
        "{} cases, {repeated} of them repeated: {counts}",
        rows.len()
    );
    let known = |name: &str| KNOWN.iter().find(|(known, ..)| *known == name);
    let mut findings = Vec::new();
    for row in rows {
        match (known(&row.name), row.verdict) {
            (None, Verdict::Right) => {}
            (Some(_), Verdict::Right) => {
                findings.push(format!("{}: right now; remove it from KNOWN", row.name))
            }
            (Some((_, least, _)), verdict) if verdict <= *least => {}
            (_, verdict) => findings.push(format!("{}: {verdict}: {}", row.name, row.line)),
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    let names = KNOWN
        .iter()
        .all(|(name, ..)| rows.iter().any(|row| row.name == *name));
    let is_whole = std::env::var_os("CRISCOPE_TRUTH").is_none();
    assert!(names || !is_whole, "KNOWN names a case that does not exist");
    if KNOWN.is_empty() && is_whole {
        assert!(count(Verdict::Right) * 60 >= RIGHT_OF_60 * rows.len());
    }
}
