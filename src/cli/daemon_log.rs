//! `criscope daemon-log`: what the daemon has logged, of one pod if asked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};

use super::CommandFailure;
use crate::cri::visible::visible;
use crate::pages::commands::duration;
use crate::pages::commands::{PodName, PodNameError};
use crate::pages::terminal::colour;

/// Keys that a line begins with, in place of key=value.
const LEADING_KEYS: [&str; 4] = ["ts", "level", "msg", "target"];
/// Longest line that is read, in bytes. The daemon's are shorter.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Print criscope's log, of all pods or of one
///
/// Reads the journal of systemd, or a file of log lines in the format json. Lines about a pod, such as its calls and
/// headlines, carry its namespace and name. kubectl logs prints the output of its containers.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only lines about this pod: POD (in any namespace), NAMESPACE/POD, or as kubectl writes it, pod/POD or pod POD
    #[arg(value_name = "POD", num_args = 0..=2)]
    pod: Vec<String>,
    /// The pod's namespace
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// Keep printing new lines until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Only lines not older than this
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, conflicts_with = "file")]
    since: Duration,
    /// Only lines of this level or a more severe one
    #[arg(long, value_name = "LEVEL", default_value = "trace")]
    level: LogSeverity,
    /// The systemd unit of criscope
    #[arg(long, value_name = "UNIT", default_value = "criscope.service")]
    unit: String,
    /// Read this file instead of the journal, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "follow")]
    file: Option<PathBuf>,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<LogOutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogOutputFormat {
    /// The lines as they were logged
    Json,
}

/// Severity of a line, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum LogSeverity {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no systemd journal.
    #[error("cannot run journalctl: {0}")]
    Journal(io::Error),
    /// journalctl failed; it has said why.
    #[error("journalctl failed")]
    Failed,
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl Error {
    /// A recommendation for the user.
    pub(super) fn hint(&self) -> Option<&'static str> {
        matches!(self, Self::Journal(_)).then_some("name a file of log lines with --file")
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let wanted = LogLineFilter::from_args(args)?;
    let colours = colour(&io::stdout());
    let print =
        |lines: &mut dyn Read, out: &mut dyn Write| copy(lines, out, &wanted, args.output, colours);
    let mut out = io::stdout().lock();
    let Some(file) = &args.file else {
        let mut journal = journal(args)?;
        let copied = match &mut journal.stdout {
            Some(lines) => print(lines, &mut out),
            None => Ok(()),
        };
        if copied.is_err() {
            // The reader of the output is gone: journalctl --follow would notice it only at its next line.
            let _ = journal.kill();
        }
        let ended = journal.wait()?;
        copied?;
        return if ended.success() {
            Ok(())
        } else {
            Err(Error::Failed.into())
        };
    };
    let mut lines: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|source| {
            let file = file.clone();
            Error::File { file, source }
        })?)
    };
    Ok(print(&mut lines, &mut out)?)
}

/// Starts journalctl(1), which knows how to read and follow the journal.
fn journal(args: &Args) -> Result<Child, Error> {
    let mut command = Command::new("journalctl");
    command.args(["--quiet", "--no-pager", "--output=cat"]);
    command.arg(format!("--unit={}", args.unit));
    command.arg(format!("--since=-{}s", args.since.as_secs()));
    if args.follow {
        // Without it --follow begins with the last ten lines.
        command.args(["--follow", "--lines=all"]);
    }
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().map_err(Error::Journal)
}

/// Which lines are printed.
#[derive(Debug)]
struct LogLineFilter {
    namespace: Option<String>,
    pod: Option<String>,
    level: LogSeverity,
}

impl LogLineFilter {
    /// # Errors
    /// If the argument is not a pod.
    fn from_args(args: &Args) -> Result<Self, PodNameError> {
        let (namespace, pod) = if args.pod.is_empty() {
            (args.namespace.clone(), None)
        } else {
            let pod = PodName::parse(&args.pod, args.namespace.as_deref())?;
            (pod.namespace, Some(pod.name))
        };
        let level = args.level;
        Ok(Self {
            namespace,
            pod,
            level,
        })
    }

    fn has(&self, line: &Map<String, Value>) -> bool {
        let namespace = word(line, "k8s.namespace.name");
        let pod = word(line, "k8s.pod.name");
        (self.namespace.is_none() || self.namespace.as_deref() == namespace)
            && (self.pod.is_none() || self.pod.as_deref() == pod)
            && level(line).is_none_or(|level| level <= self.level)
    }
}

fn word<'a>(line: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    line.get(key).and_then(Value::as_str)
}

fn level(line: &Map<String, Value>) -> Option<LogSeverity> {
    clap::ValueEnum::from_str(word(line, "level")?, true).ok()
}

/// Prints the wanted lines, each as soon as it is read. Lines that are not JSON objects, such as systemd's, are printed unless
/// a pod is asked for.
fn copy(
    lines: &mut dyn Read,
    out: &mut dyn Write,
    wanted: &LogLineFilter,
    output: Option<LogOutputFormat>,
    colours: bool,
) -> io::Result<()> {
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let parsed = serde_json::from_str::<Map<String, Value>>(text);
        let printed = match (&parsed, output) {
            (Ok(parsed), _) if !wanted.has(parsed) => continue,
            (Ok(_), Some(LogOutputFormat::Json)) => text.to_owned(),
            (Ok(parsed), None) => sentence(parsed, colours),
            (Err(_), None) if wanted.pod.is_none() && wanted.namespace.is_none() => {
                visible(text).to_string()
            }
            (Err(_), _) => continue,
        };
        writeln!(out, "{printed}")?;
        out.flush()?;
    }
}

/// A line for people: time, level, message, and the other keys as key=value.
fn sentence(line: &Map<String, Value>, colours: bool) -> String {
    let style = match level(line) {
        Some(LogSeverity::Error) if colours => AnsiColor::Red.on_default().bold(),
        Some(LogSeverity::Warn) if colours => AnsiColor::Yellow.on_default().bold(),
        _ => Style::new(),
    };
    let dimmed = if colours {
        Style::new().dimmed()
    } else {
        Style::new()
    };
    let [time, level, message] =
        ["ts", "level", "msg"].map(|key| word(line, key).unwrap_or_default());
    let level = level.to_ascii_uppercase();
    let (time, level, message) = (visible(time), visible(&level), visible(message));
    let mut text = format!("{time} {style}{level:<5}{style:#} {message}");
    for (key, value) in line {
        if LEADING_KEYS.contains(&key.as_str()) {
            continue;
        }
        let value = match value {
            Value::String(text) if !text.is_empty() && !text.contains([' ', '"', '=']) => {
                text.clone()
            }
            value => value.to_string(),
        };
        text += &format!(" {dimmed}{}={dimmed:#}{}", visible(key), visible(&value));
    }
    text
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

    const LOG: &str = concat!(
        r#"{"ts":"2026-11-23T06:00:00.000001Z","level":"info","target":"a","msg":"call","event":"call","k8s.namespace.name":"shop","k8s.pod.name":"web","rpc.method":"RunPodSandbox"}"#,
        "\nStarted criscope.service\n",
        r#"{"ts":"2026-11-23T06:00:01.000001Z","level":"warn","target":"a","msg":"slow \u001b[2J","k8s.namespace.name":"shop","k8s.pod.name":"db","n":3}"#,
        "\n",
    );

    fn printed(flags: &[&str]) -> String {
        let args = ["daemon-log"].iter().chain(flags);
        let args = ParsedLine::try_parse_from(args).expect("parsed").args;
        let wanted = LogLineFilter::from_args(&args).expect("a pod");
        let mut out = Vec::new();
        copy(&mut LOG.as_bytes(), &mut out, &wanted, args.output, false).expect("copied");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_are_chosen_by_pod_and_level() {
        assert_eq!(printed(&[]).lines().count(), 3);
        for web in [
            &["shop/web"][..],
            &["web", "-n", "shop"],
            &["pod/web", "-n", "shop"],
            &["pod", "web"],
        ] {
            assert_eq!(
                printed(web),
                "2026-11-23T06:00:00.000001Z INFO  call event=call k8s.namespace.name=shop k8s.pod.name=web rpc.method=RunPodSandbox\n"
            );
        }
        assert_eq!(printed(&["other/web"]), "");
        assert!(printed(&["--level", "warn", "-n", "shop"]).contains("db n=3"));
        assert_eq!(printed(&["--level", "error", "-n", "shop"]), "");
    }

    #[test]
    fn a_log_line_cannot_control_the_terminal() {
        assert!(!printed(&["shop/db"]).contains('\u{1b}'));
    }

    #[test]
    fn json_is_printed_as_it_was_logged() {
        assert_eq!(
            printed(&["shop/web", "-o", "json"]).trim_end(),
            LOG.lines().next().unwrap_or_default()
        );
        assert_eq!(printed(&["-o", "json"]).lines().count(), 2, "JSON alone");
    }
}
