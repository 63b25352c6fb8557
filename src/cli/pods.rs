//! `criscope pods`: the pods of this node, failing pods first.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

use super::CommandFailure;
use super::ask::{AdminEndpoint, StateSourceArgs, block_on, encoded, print_json};
use super::format::{self, OutputFormat};
use super::http::AdminRequestError;
use super::output;
use super::render::pods::{PodColumns, summary, table};
use super::screen::{self, DEFAULT_REFRESH_INTERVAL};
use crate::cri::visible::visible;
use crate::lifecycle::view::{PodList, PodState, PodSummary};
use crate::units::times::UnixMicros;

/// List pods with their state, failing pods first, deleted pods last
///
/// One row per pod: retries, restarts and a crash loop are one row. Pods whose sandbox was stopped come last, as "gone".
/// Times of pods that are failing, starting or stopping count from the beginning of that state. The column REASON is the first
/// line of criscope explain. A pod appears with the first call of its start, restart or stop that passes this criscope.
#[derive(Debug, clap::Args)]
#[command(after_help = STATES_HELP)]
pub(super) struct Args {
    /// Only pods whose name contains this, or NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    admin: StateSourceArgs,
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
    #[arg(long, short, conflicts_with_all = ["output", "json"])]
    watch: bool,
    /// Output format; wide: one line per pod, nothing truncated, and its uid
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<PodsOutputFormat>,
    /// Print the episodes as JSON, like /debug/pods
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

/// Printed below the options.
const STATES_HELP: &str = "\
States: failing (a call fails, a crash loop, or a failed start), open (starting or stopping),
        crash-loop, failed, starting, stopping, ok, gone";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PodsOutputFormat {
    Wide,
    Json,
    Yaml,
}

/// A word of `--state`.
fn state(text: &str) -> Result<String, String> {
    match PodState::default().is_meant(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(
            "expected failing, open, crash-loop, failed, starting, stopping, ok or gone".to_owned(),
        ),
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let path = path(args);
    if args.watch {
        return block_on(watch(args, &endpoint, &path));
    }
    let bytes = block_on(async { Ok(endpoint.bytes(&path).await?) })?;
    if args.json {
        return Ok(print_json(&bytes)?);
    }
    let pods: PodList = endpoint.parse(&path, &bytes)?;
    match args.output {
        Some(PodsOutputFormat::Json) => return Ok(format::print(OutputFormat::Json, &pods)?),
        Some(PodsOutputFormat::Yaml) => return Ok(format::print(OutputFormat::Yaml, &pods)?),
        Some(PodsOutputFormat::Wide) | None => {}
    }
    let mut out = io::stdout().lock();
    if pods.pods.is_empty() {
        writeln!(out, "{}", nothing(args, pods.known))?;
    } else {
        out.write_all(text(args, &pods).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// The table for this output.
fn text(args: &Args, pods: &PodList) -> String {
    let (look, columns) = match (args.output, output::columns()) {
        (Some(PodsOutputFormat::Wide), _) => (output::look(usize::MAX), PodColumns::Wide),
        (_, None) => (output::look(usize::MAX), PodColumns::Lines),
        (_, Some(width)) => (output::look(width), PodColumns::Fitting),
    };
    table(pods, look, columns, args.namespace.is_none())
}

/// Redraws the list on a terminal; otherwise prints it, and afterwards what changes.
async fn watch(args: &Args, endpoint: &AdminEndpoint, path: &str) -> Result<(), CommandFailure> {
    let read = async || endpoint.json::<PodList>(path).await;
    if io::stdout().is_terminal() {
        let draw = async |height: Option<usize>| -> Result<String, AdminRequestError> {
            let pods = read().await?;
            let mut drawn = summary(&pods, output::look(usize::MAX));
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
    let mut ends = screen::TerminationSignals::new()?;
    let mut seen = HashMap::new();
    loop {
        let mut pods = read().await?;
        let is_first = seen.is_empty();
        pods.pods.retain(|pod| news(&mut seen, pod));
        if !pods.pods.is_empty() {
            let rows = text(args, &pods);
            let rows = if is_first {
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

fn path(args: &Args) -> String {
    let mut path = if args.json {
        "/debug/pods?format=json&kind=start,restart".to_owned()
    } else {
        "/debug/pods?format=json&by=pod".to_owned()
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
fn nothing(args: &Args, known: usize) -> String {
    if known == 0 {
        return "No pod has been started, restarted or stopped through this criscope yet."
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
        args: Args,
    }

    fn args(line: &[&str]) -> Result<Args, clap::Error> {
        let line = ["pods"].iter().chain(line);
        ParsedLine::try_parse_from(line).map(|line| line.args)
    }

    #[test]
    fn flags_become_a_query() {
        let path = |line: &[&str]| path(&args(line).expect("valid"));
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
