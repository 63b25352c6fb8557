//! `criscope pods`: the pods of this node, failing pods first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

use criscope_cri::units::times::UnixMicros;
use criscope_cri::visible::visible;

use super::PageCommandError;
use crate::source::{PageError, PageSource, encoded};
use crate::terminal::format::{self, OutputFormat};
use crate::terminal::render::pods::{PodColumns, summary, table};
use crate::terminal::screen::{self, DEFAULT_REFRESH_INTERVAL};
use crate::terminal::{TerminationSignals, columns, look};
use crate::view::{PodList, PodState, PodSummary};

/// Which pods to list, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct PodsArgs {
    /// Only pods whose name contains this, or NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Only pods in this namespace [default: all]
    #[arg(long, short, value_name = "NS", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Pods in all namespaces, which is the default
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Only pods in these states, separated by commas
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state)]
    state: Vec<String>,
    /// Show this many at most, the slowest of each state first
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    slowest: Option<u32>,
    /// Only pods that are failing, or had a failed call
    #[arg(long)]
    failed: bool,
    /// Keep the list up to date until Ctrl-C. Without a terminal, print a row whenever a pod's state changes
    #[arg(long, short, conflicts_with = "output")]
    watch: bool,
    /// Output format; name: NAMESPACE/NAME alone; wide: one line per pod, nothing truncated, and its uid
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<PodsOutputFormat>,
    /// Order of the pods [default: pods in trouble first]
    #[arg(long, value_name = "COLUMN", conflicts_with = "slowest")]
    sort_by: Option<PodsOrder>,
    /// Print no line with the names of the columns
    #[arg(long)]
    no_headers: bool,
}

/// Printed below the options.
pub const STATES_HELP: &str = "\
States: failing (a call or a probe fails, a crash loop, or a failed start or container),
        open (starting or stopping), crash-loop, failed, stopped, starting, stopping, ok,
        completed, gone";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PodsOutputFormat {
    Name,
    Wide,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PodsOrder {
    /// By namespace and name
    Name,
    /// The worst state first
    State,
    /// The longest time in its state first
    Age,
    /// The slowest start first
    Duration,
    /// The most restarts first
    Restarts,
}

impl PodsOrder {
    fn sort(self, pods: &mut [PodSummary]) {
        match self {
            Self::Name => {
                pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
            }
            Self::State => pods.sort_by_key(|pod| pod.state),
            Self::Age => pods.sort_by_key(|pod| pod.since_unix_us),
            Self::Duration => pods.sort_by(|a, b| b.duration_ms.total_cmp(&a.duration_ms)),
            Self::Restarts => pods.sort_by_key(|pod| Reverse(pod.restarts)),
        }
    }
}

/// A word of `--state`.
fn state(text: &str) -> Result<String, String> {
    match PodState::default().is_meant(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let states = PodState::ALL.map(|state| state.word().replace(' ', "-"));
            let others = states.iter().filter(|state| *state != "failing");
            let others: Vec<_> = others.map(String::as_str).collect();
            Err(format!("expected failing, open, {}", others.join(", ")))
        }
    }
}

impl PodsArgs {
    /// Lists the pods of this namespace, unless the arguments name another or all.
    pub fn default_namespace(&mut self, namespace: &str) {
        let names_one = self.name.as_ref().is_some_and(|name| name.contains('/'));
        if !self.all_namespaces && !names_one && self.namespace.is_none() {
            self.namespace = Some(namespace.to_owned());
        }
    }

    /// How many pods the list may have.
    pub fn limit(&self) -> Option<usize> {
        self.slowest.map(|limit| limit as usize)
    }
}

/// Prints the list of pods.
///
/// # Errors
/// If it could not be read or printed.
pub async fn run(
    args: &PodsArgs,
    source: &(impl PageSource + Sync),
) -> Result<(), PageCommandError> {
    let path = path(args, Page::Pods);
    if args.watch {
        return watch(args, source, &path).await;
    }
    let bytes = source.bytes(&path).await?;
    let mut pods: PodList = source.parse(&path, &bytes)?;
    if let Some(order) = args.sort_by {
        order.sort(&mut pods.pods);
    }
    match args.output {
        Some(PodsOutputFormat::Json) => return Ok(format::print(OutputFormat::Json, &pods)?),
        Some(PodsOutputFormat::Yaml) => return Ok(format::print(OutputFormat::Yaml, &pods)?),
        Some(PodsOutputFormat::Name | PodsOutputFormat::Wide) | None => {}
    }
    let mut out = io::stdout().lock();
    if args.output == Some(PodsOutputFormat::Name) {
        out.write_all(names(&pods).as_bytes())?;
    } else if pods.pods.is_empty() {
        writeln!(out, "{}", nothing(args, pods.known))?;
    } else {
        out.write_all(text(args, &pods).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Prints the page of episodes unchanged.
///
/// # Errors
/// If it could not be read or printed.
pub async fn print_episodes(
    args: &PodsArgs,
    source: &(impl PageSource + Sync),
) -> Result<(), PageCommandError> {
    let bytes = source.bytes(&path(args, Page::Episodes)).await?;
    Ok(format::print_json(&bytes)?)
}

/// The pages that have pods.
#[derive(Clone, Copy, Debug)]
enum Page {
    /// One row for each pod.
    Pods,
    /// One row for each start and restart.
    Episodes,
}

/// `NAMESPACE/NAME` of each pod, which `criscope explain` takes.
fn names(pods: &PodList) -> String {
    let pods = pods.pods.iter();
    let names = pods.map(|pod| format!("{}/{}\n", visible(&pod.namespace), visible(&pod.name)));
    names.collect()
}

/// The table for this output.
fn text(args: &PodsArgs, pods: &PodList) -> String {
    let (look, columns) = match (args.output, columns()) {
        (Some(PodsOutputFormat::Wide), _) => (look(usize::MAX), PodColumns::Wide),
        (_, None) => (look(usize::MAX), PodColumns::Lines),
        (_, Some(width)) => (look(width), PodColumns::Fitting),
    };
    let text = table(pods, look, columns, args.namespace.is_none());
    match text.split_once('\n') {
        Some((_, rows)) if args.no_headers => rows.to_owned(),
        _ => text,
    }
}

/// Redraws the list on a terminal; otherwise prints it, and afterwards what changes.
async fn watch(
    args: &PodsArgs,
    source: &(impl PageSource + Sync),
    path: &str,
) -> Result<(), PageCommandError> {
    let read = async || source.json::<PodList>(path).await;
    if io::stdout().is_terminal() {
        let draw = async |height: Option<usize>| -> Result<String, PageError> {
            let pods = read().await?;
            let mut drawn = summary(&pods, look(usize::MAX));
            if pods.pods.is_empty() {
                drawn += &nothing(args, pods.known)
            } else {
                drawn += &text(args, &pods)
            }
            let lines: Vec<_> = drawn.lines().take(height.unwrap_or(usize::MAX)).collect();
            Ok(lines.join("\n"))
        };
        return screen::watch(draw, DEFAULT_REFRESH_INTERVAL).await;
    }
    let mut ends = TerminationSignals::new()?;
    let mut seen = HashMap::new();
    loop {
        let mut pods = read().await?;
        let is_first = seen.is_empty();
        pods.pods.retain(|pod| news(&mut seen, pod));
        if !pods.pods.is_empty() {
            let rows = text(args, &pods);
            let rows = if is_first || args.no_headers {
                &*rows
            } else {
                rows.split_once('\n').map_or("", |(_, rows)| rows)
            };
            let mut out = io::stdout().lock();
            out.write_all(rows.as_bytes())?;
            out.flush()?;
        }
        tokio::select! {
            () = tokio::time::sleep(DEFAULT_REFRESH_INTERVAL) => {}
            () = ends.any() => return Ok(()),
        }
    }
}

/// Returns whether a pod is new or in another state than when it was printed.
fn news(seen: &mut HashMap<[String; 3], (PodState, u32, UnixMicros)>, pod: &PodSummary) -> bool {
    let key = [&pod.namespace, &pod.name, &pod.uid].map(String::clone);
    let now = (pod.state, pod.restarts, pod.since_unix_us);
    seen.insert(key, now) != Some(now)
}

fn path(args: &PodsArgs, page: Page) -> String {
    let mut path = match page {
        Page::Pods => "/debug/pods?format=json&by=pod".to_owned(),
        Page::Episodes => "/debug/pods?format=json&kind=start,restart".to_owned(),
    };
    let (namespace, name) = match args.name.as_deref().and_then(|name| name.split_once('/')) {
        Some(("pod" | "pods" | "po", name)) => (None, Some(name)),
        Some((namespace, name)) => (Some(namespace), Some(name)),
        None => (None, args.name.as_deref()),
    };
    let states = args.state.join(",");
    for (key, value) in [
        ("namespace", args.namespace.as_deref().or(namespace)),
        ("name", name),
        ("state", Some(&*states)),
        ("failed", args.failed.then_some("true")),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            path.push_str(&format!("&{key}={}", encoded(value)));
        }
    }
    if let Some(limit) = args.slowest {
        path.push_str(&format!("&sort=slowest&limit={limit}"));
    }
    path
}

/// The message for an empty list.
fn nothing(args: &PodsArgs, known: usize) -> String {
    if known == 0 {
        return "No pod has been started, restarted or stopped through this criscope yet, and its runtimes list none."
            .to_owned();
    }
    let mut which = Vec::new();
    if let Some(name) = &args.name {
        which.push(format!("named {}", visible(name)));
    }
    if let Some(namespace) = &args.namespace {
        which.push(format!("in namespace {}", visible(namespace)));
    }
    if !args.state.is_empty() {
        which.push(format!("in state {}", args.state.join(" or ")));
    }
    if args.failed {
        which.push("with a failed call".to_owned());
    }
    let others = match known {
        1 => "1 pod is known".to_owned(),
        n => format!("{n} pods are known"),
    };
    format!("No pod {}; {others}.", which.join(" "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ParsedLine {
        #[command(flatten)]
        args: PodsArgs,
    }

    fn args(line: &[&str]) -> Result<PodsArgs, clap::Error> {
        let line = ["pods"].iter().chain(line);
        ParsedLine::try_parse_from(line).map(|line| line.args)
    }

    #[test]
    fn flags_become_a_query() {
        let path = |line: &[&str]| path(&args(line).expect("valid"), Page::Pods);
        assert_eq!(path(&[]), "/debug/pods?format=json&by=pod");
        assert_eq!(path(&["-A"]), path(&[]));
        assert_eq!(
            path(&["web", "-n", "a b", "--state", "failing,gone"]),
            "/debug/pods?format=json&by=pod&namespace=a%20b&name=web&state=failing%2Cgone"
        );
        assert_eq!(path(&["shop/web"]), path(&["web", "-n", "shop"]));
        assert_eq!(path(&["pod/web"]), path(&["web"]));
        assert!(
            path(&["--slowest", "3", "--failed"]).ends_with("&failed=true&sort=slowest&limit=3")
        );
        for bad in [
            ["--state", "broken"].as_slice(),
            &["-A", "-n", "shop"],
            &["-w", "-o", "json"],
            &["-o", "xml"],
            &["--slowest", "0"],
        ] {
            assert!(args(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_empty_list_says_what_was_asked_for() {
        let none = |line: &[&str], known| nothing(&args(line).expect("valid"), known);
        assert!(none(&["-n", "a"], 0).starts_with("No pod has been started"));
        assert_eq!(
            none(&["web", "-n", "shop", "--state", "failing,open"], 7),
            "No pod named web in namespace shop in state failing or open; 7 pods are known."
        );
        assert_eq!(
            none(&["--failed"], 1),
            "No pod with a failed call; 1 pod is known."
        );
    }

    #[test]
    fn a_pod_is_printed_again_when_its_state_changes() {
        let mut seen = HashMap::new();
        let mut pod = PodSummary::default();
        assert!(news(&mut seen, &pod) && !news(&mut seen, &pod));
        pod.duration_ms = 5.0;
        assert!(!news(&mut seen, &pod), "time alone is no news");
        pod.state = PodState::Failing;
        assert!(news(&mut seen, &pod));
    }
}
