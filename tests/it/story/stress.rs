//! Telemetry at its worst: a disk that is full, a collector that never answers, and a thousand pods. No call fails or is
//! held up by it, memory has a bound, and whatever is not there afterwards was counted.

use super::pod::{Pod, runtime};
use super::{assert_one_a_minute, config, proxy};
use crate::prelude::*;

const PODS: usize = 1000;
/// Calls of a start; each makes two spans and a line of the journal.
const CALLS: usize = 4;
/// Pods that start at the same time.
const AT_ONCE: usize = 8;
/// Turns in which they are started.
const TURNS: usize = 10;
/// Spans that wait for the collector: so few that the queue is full soon, however slow the machine is.
const SPANS_AT_ONCE: &str = "200";
/// Episodes that are remembered: few, so that the thousand do not fit.
const EPISODES: usize = 100;
/// What half of the pods may add to the memory, in KiB, when the other half has filled all that is bounded.
const GROWTH: u64 = 4 << 10;

/// Starts these pods, some at a time, and gives how long each took. Every call has to be answered well.
async fn start_all(proxy: &Proxy, pods: std::ops::Range<usize>) -> Vec<Duration> {
    let client = Arc::new(proxy.client().await);
    let (next, end) = (Arc::new(AtomicUsize::new(pods.start)), pods.end);
    let workers = (0..AT_ONCE).map(|_| {
        let (client, next) = (Arc::clone(&client), Arc::clone(&next));
        tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::SeqCst);
                if n >= end {
                    return took;
                }
                let began = Instant::now();
                Pod::new(&format!("p{n}")).start(&client).await;
                took.push(began.elapsed());
            }
        })
    });
    let mut all = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        all.extend(worker.await.expect("every call is answered"));
    }
    all
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Memory of a process, in KiB.
fn resident(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let size = line.and_then(|l| l.split_whitespace().next());
    size.expect("VmRSS").parse().expect("a number")
}

fn lost(scrape: &Scrape, signal: &str, reason: &str) -> f64 {
    let all = scrape.metric("criscope_telemetry_dropped_total");
    all.with("signal", signal).with("reason", reason).sum()
}

fn journal_lost(scrape: &Scrape) -> f64 {
    lost(scrape, "story", "journal_failed") + lost(scrape, "story", "journal_queue_full")
}

/// Lines of the journal that wait for space.
fn journal_waiting(scrape: &Scrape) -> f64 {
    scrape.metric("criscope_story_journal_waiting_lines").sum()
}

/// Keeps its state on a disk of 64 KiB, in a mount namespace that goes with the program.
fn on_a_small_disk(start: Start, state: &Path) -> Start {
    let script = "mount -t tmpfs -o size=64k,mode=700 tmpfs \"$0\" && exec \"$@\"";
    let mut small = Command::new(program("unshare", "util-linux"));
    small.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    small.arg(state);
    start.wrapped(small)
}

/// The lines of the journal that are whole, as the program sees the disk. A line that the full disk cut is written again when there is space.
fn kept_lines(proxy: &Proxy, state: &Path) -> usize {
    let root = format!("/proc/{}/root{}", proxy.pid(), state.display());
    let text = fs::read(Path::new(&root).join("journal.jsonl")).expect("a journal");
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let is_json = |line: &[u8]| serde_json::from_slice::<Value>(line).is_ok();
    lines
        .filter(|line| line.ends_with(b"\n") && is_json(line))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pods_on_a_full_disk_before_a_dead_collector() {
    need_root();
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let peace = tempfile::tempdir().expect("dir");
    let peaceful = proxy(&fake, &peace).await;
    let collector = Collector::new(Manner::Hangs).await;
    let settings = format!(
        "{}episodes = {EPISODES}\n[telemetry.otlp]\nendpoint = \"{}\"\ntimeout = \"2s\"\n",
        config(state.path()),
        collector.endpoint()
    );
    let start = Start::new(crate::CRISCOPE)
        .config(&settings)
        .upstream(fake.path());
    let began = Instant::now();
    let proxy = on_a_small_disk(start, state.path())
        .env("OTEL_BSP_MAX_QUEUE_SIZE", SPANS_AT_ONCE)
        .ready()
        .await;
    // By turns, so that the machine is as busy for the one as for the other.
    let (mut calm, mut took) = (Vec::new(), Vec::new());
    let mut half = 0;
    for turn in 0..TURNS {
        let part = |all: usize| all * turn / TURNS..all * (turn + 1) / TURNS;
        calm.extend(start_all(&peaceful, part(PODS / 10)).await);
        took.extend(start_all(&proxy, part(PODS)).await);
        if turn + 1 == TURNS / 2 {
            half = resident(proxy.pid());
        }
    }
    peaceful.stop().await;
    let grown = resident(proxy.pid()).saturating_sub(half);
    assert!(grown < GROWTH, "from {half} KiB by {grown} KiB");
    // A sanity check only: a call that waits for a disk or a collector waits for longer than this.
    let (calm, stressed) = (median(calm), median(took));
    let bound = 5 * calm + Duration::from_millis(50);
    assert!(stressed < bound, "{stressed:?}, and {calm:?} in peace");

    let starts = told_starts(&proxy).await;
    every_line_is_accounted_for(&proxy, state.path(), starts).await;
    every_span_is_accounted_for(&proxy, starts).await;
    proxy.signal(Signal::SIGUSR2);
    let dump = |scrape: &Scrape| lost(scrape, "dump", "write_failed") == 1.0;
    proxy.wait_scrape("the dump that is lost", dump).await;
    let log = proxy.stop().await;
    let complaints = log.iter().filter(|l| l.contains("cannot be written: "));
    assert_one_a_minute(complaints.count(), began);
}

/// Starts that were told. The story needs neither disk nor collector: all calls of it are there, and a start that is not
/// told had to make room, because so many are open at a time. That is counted too.
async fn told_starts(proxy: &Proxy) -> usize {
    let told = |scrape: &Scrape| {
        let starts = scrape.metric("criscope_pod_start_duration_seconds_count");
        starts.with("outcome", "ok").sum()
    };
    let forgotten = |scrape: &Scrape| lost(scrape, "story", "episodes_full");
    let all = |scrape: &Scrape| told(scrape) + forgotten(scrape) >= PODS as f64;
    let scrape = proxy.wait_scrape("the account of every start", all).await;
    assert_eq!(told(&scrape) + forgotten(&scrape), PODS as f64);
    assert_eq!(lost(&scrape, "story", "queue_full"), 0.0);
    let episodes = scrape.metric("criscope_story_episodes").sum();
    assert!(episodes <= EPISODES as f64, "{episodes}");
    assert!(told(&scrape) >= episodes);
    told(&scrape) as usize
}

/// A line of the journal is on the disk, or it waits for space, or it is counted as lost.
async fn every_line_is_accounted_for(proxy: &Proxy, state: &Path, starts: usize) {
    // Each call, and that a start is over.
    let told = (PODS * CALLS + starts) as f64;
    let kept = || kept_lines(proxy, state) as f64;
    let scrape = proxy
        .wait_scrape("the account of every line", |scrape| {
            journal_lost(scrape) + journal_waiting(scrape) + kept() >= told
        })
        .await;
    assert!(kept() > 0.0 && kept() < told / 2.0, "the disk is small");
    // On a busy node a start has one more line, on what the node lacked.
    let lines = journal_lost(&scrape) + journal_waiting(&scrape) + kept();
    assert!(lines <= told + starts as f64, "{lines} of {told}");
}

/// Most background jobs of this test: those of the start, and lists that unknown ids make necessary.
const JOBS: f64 = 20.0;

/// No span was taken: all of them are counted as failed or as dropped.
async fn every_span_is_accounted_for(proxy: &Proxy, starts: usize) {
    // Two for each call. An exported start adds its root, if one of its calls found room in the queue, and its gaps.
    let of_calls = (PODS * 2 * CALLS) as f64;
    let most = of_calls + (starts * (1 + CALLS)) as f64 + JOBS;
    let reasons = ["queue_full", "export_failed", "shutdown"];
    let all_lost = |scrape: &Scrape| {
        let lost = reasons.map(|why| lost(scrape, "span", why));
        lost.iter().sum::<f64>()
    };
    let all = |scrape: &Scrape| all_lost(scrape) >= of_calls;
    let scrape = proxy.wait_scrape("the account of every span", all).await;
    assert!(all_lost(&scrape) <= most, "{} > {most}", all_lost(&scrape));
    let decided = scrape.metric("criscope_telemetry_spans_total");
    assert_eq!(decided.with("decision", "exported").sum(), 0.0);
}
