//! Draws a pod as the runtime lists it: its ids and containers.

use std::fmt::Write as _;

use super::super::{TerminalOutput, TextStyle, pad, pod};
use super::TIME_WIDTH;
use crate::view::{ListedContainerView, ListedPodView, PodStory, exit_reason_in_words};
use criscope_cri::units;
use criscope_cri::units::times::UnixMicros;

/// Widest name of a container.
const MAX_NAME_WIDTH: usize = 30;

/// Writes the pod, then a line for each container.
pub(super) fn write(text: &mut String, story: &PodStory, paper: TerminalOutput) {
    let Some(listed) = &story.listed else { return };
    let ListedPodView {
        uid,
        sandbox_id,
        state,
        created_unix_us,
        containers,
    } = listed;
    let age = units::since(story.now_unix_us.since(*created_unix_us));
    let began = units::rfc3339(*created_unix_us);
    text.push('\n');
    for (head, line) in [
        ("pod", pod(&story.namespace, &story.name)),
        ("what", format!("{}, as the runtime lists it", state.word())),
        ("began", format!("{began}, {age}")),
        ("uid", uid.clone()),
        ("sandbox", sandbox_id.clone()),
    ] {
        let line = paper.cut(&line, paper.width() - TIME_WIDTH);
        let head = paper.ink(TextStyle::Dim, &pad(head, TIME_WIDTH));
        let _ = writeln!(text, "{head}{line}");
    }
    if containers.is_empty() {
        return;
    }
    let widths = containers.iter().map(|run| run.name.chars().count());
    let name = widths.fold("CONTAINER".len(), usize::max);
    let name = name.min(MAX_NAME_WIDTH);
    let head = format!(
        "{}  STATE    SINCE   RESTARTS  EXIT",
        pad("CONTAINER", name)
    );
    let _ = writeln!(text, "\n{}", paper.ink(TextStyle::Dim, &head));
    for run in containers {
        let age = units::ago(story.now_unix_us.since(since(run)));
        let line = format!(
            "{}  {}  {}  {:>8}  {}",
            pad(&paper.cut_middle(&run.name, name), name),
            pad(&run.state, 7),
            pad(&age, 6),
            run.restarts,
            exit(run)
        );
        let _ = writeln!(text, "{}", paper.ink(ink(run), line.trim_end()));
    }
}

/// Begin of the state of a container.
fn since(run: &ListedContainerView) -> UnixMicros {
    run.ended_unix_us.unwrap_or(run.created_unix_us)
}

fn exit(run: &ListedContainerView) -> String {
    match (run.exit_code, &run.exit_reason) {
        (Some(code), Some(reason)) => format!("code {code}, {}", exit_reason_in_words(reason)),
        _ => String::new(),
    }
}

fn ink(run: &ListedContainerView) -> TextStyle {
    match (&*run.state, run.exit_code) {
        ("running", _) => TextStyle::Green,
        ("exited", Some(0)) => TextStyle::Dim,
        ("exited" | "unknown", _) => TextStyle::Red,
        _ => TextStyle::Blue,
    }
}
