//! The lines of the waterfall of a pod: calls, equal tries, waits, and the work within a call.

use std::fmt::Write as _;

use crate::cli::render::{TerminalOutput, TextStyle, image};
use crate::lifecycle::view::{
    CallDetail, CallView, InitContainerWaitView, PodSyncView, RepeatedTries, details,
};
use crate::units;

/// One line of the waterfall.
pub(super) struct WaterfallRow {
    pub(super) at: f64,
    pub(super) took: f64,
    pub(super) ink: TextStyle,
    /// Always shown in full.
    pub(super) name: String,
    /// Truncated at its end if it does not fit.
    pub(super) about: String,
    /// Indented and dim.
    pub(super) detail: bool,
    /// Written below the line.
    pub(super) error: Option<String>,
    /// Warnings, written below the line.
    pub(super) remarks: Vec<String>,
    /// Begin and duration of each of several bars; empty for one.
    pub(super) bars: Vec<(f64, f64)>,
}

impl WaterfallRow {
    /// Where its bars end.
    pub(super) fn end(&self) -> f64 {
        let ends = self.bars.iter().map(|(at, took)| at + took);
        ends.reduce(f64::max).unwrap_or(self.at + self.took)
    }

    /// Draws the bar, or bars, of the row in `room` columns that represent `total` milliseconds.
    pub(super) fn bar(&self, total: f64, room: usize, paper: TerminalOutput) -> String {
        let bars = self.bars.iter().map(|bar| paper.bar(*bar, total, room));
        bars.reduce(|a, b| {
            let behind = b.chars().chain(std::iter::repeat(' '));
            let both = a.chars().zip(behind);
            let both: String = both.map(|(a, b)| if a == ' ' { b } else { a }).collect();
            let rest: String = b.chars().skip(a.chars().count()).collect();
            both + &rest
        })
        .unwrap_or_else(|| paper.bar((self.at, self.took), total, room))
    }

    /// Name and subject, in at most this many columns.
    pub(super) fn label(&self, columns: usize, paper: TerminalOutput) -> String {
        let name = paper.cut(&self.name, columns);
        let left = columns.saturating_sub(name.chars().count() + 1);
        let whole = self.about.chars().count();
        // A few letters of a longer text are useless.
        if whole == 0 || left < whole.min(6) {
            name
        } else {
            format!("{name} {}", paper.cut_front(&self.about, left))
        }
    }
}

/// The line of equal tries: a bar for each of them, the number and the times. The last of them follows in full.
pub(super) fn tries(tries: &RepeatedTries<'_>) -> Option<WaterfallRow> {
    let failed = tries.failed()?;
    let (begin, end) = tries.span_ms();
    let (first, last) = tries.begins_unix_us();
    Some(WaterfallRow {
        at: begin,
        took: end - begin,
        ink: TextStyle::Red,
        name: format!("{} failed {} times", failed.method, tries.count),
        about: String::new(),
        detail: false,
        error: Some(format!(
            "{} tries, {} UTC; the last:",
            tries.count,
            units::from_to(first, last)
        )),
        remarks: Vec::new(),
        bars: tries
            .calls
            .iter()
            .map(|call| (call.offset_ms, call.duration_ms))
            .collect(),
    })
}

/// The line of a container that a call waited for.
pub(super) fn wait(wait: &InitContainerWaitView) -> WaterfallRow {
    WaterfallRow {
        at: wait.offset_ms,
        took: wait.duration_ms,
        ink: TextStyle::Yellow,
        name: "init container".to_owned(),
        about: wait.container.clone(),
        detail: false,
        error: None,
        remarks: Vec::new(),
        bars: Vec::new(),
    }
}

/// The line of the kubelet's own work. Its bar begins with the episode at the earliest.
pub(super) fn kubelet(sync: &PodSyncView) -> WaterfallRow {
    let at = sync.offset_ms.max(0.0);
    let mut name = format!("kubelet: {}", sync.name);
    match (&sync.error, sync.tries) {
        (None, _) => {}
        (Some(_), 0 | 1) => name.push_str(" failed"),
        (Some(_), n) => {
            let _ = write!(name, " failed {n} times");
        }
    }
    let before = sync.offset_ms < 0.0;
    let before = before.then(|| format!("(began {} before)", units::duration(-sync.offset_ms)));
    WaterfallRow {
        at,
        took: sync.duration_ms,
        ink: match sync.error {
            Some(_) => TextStyle::Red,
            None => TextStyle::Dim,
        },
        name,
        about: before.unwrap_or_default(),
        detail: false,
        error: sync.error.clone(),
        remarks: Vec::new(),
        bars: vec![(at, (sync.offset_ms + sync.duration_ms - at).max(0.0))],
    }
}

/// The line of a call and those of its details.
pub(super) fn lines(call: &CallView) -> Vec<WaterfallRow> {
    let mut about = match (&call.container, &call.image) {
        (Some(container), _) => container.clone(),
        (None, Some(name)) => image(name),
        (None, None) => String::new(),
    };
    let failed = !matches!(call.outcome.as_str(), "ok" | "in_flight");
    let mut name = call.method.clone();
    if call.retry {
        name.push_str(" again");
    }
    match (call.outcome.as_str(), &call.phase) {
        ("in_flight", phase) => {
            name.push_str(" in flight");
            let phase = phase.iter().map(|phase| format!(" ({phase})"));
            about.extend(phase);
        }
        _ if failed => name.push_str(" failed"),
        _ => {}
    }
    let about = about.trim_start().to_owned();
    let mut lines = vec![WaterfallRow {
        at: call.offset_ms,
        took: call.duration_ms,
        ink: if failed {
            TextStyle::Red
        } else {
            ink_of(&call.method)
        },
        name,
        about,
        detail: false,
        error: failed.then(|| error(call)),
        remarks: call.remarks.clone(),
        bars: Vec::new(),
    }];
    lines.extend(details(call).iter().map(|(one, count)| detail(one, *count)));
    lines
}

/// `CODE: message`, and the deadline if it was exceeded.
pub(super) fn error(call: &CallView) -> String {
    let mut text = call.code.clone();
    if let Some(error) = &call.error {
        let _ = write!(text, ": {error}");
    }
    if let ("deadline", Some(ms)) = (call.outcome.as_str(), call.deadline_ms) {
        let _ = write!(text, " (the caller's deadline was {})", units::duration(ms));
    }
    text
}

pub(super) fn ink_of(method: &str) -> TextStyle {
    match method {
        "PullImage" => TextStyle::Magenta,
        "CreateContainer" => TextStyle::Cyan,
        "StartContainer" => TextStyle::Green,
        _ => TextStyle::Blue,
    }
}

pub(super) fn detail(detail: &CallDetail, count: usize) -> WaterfallRow {
    let (ink, kind) = match detail.what.as_str() {
        "cni" => (TextStyle::Yellow, "CNI "),
        "oci" => (TextStyle::Cyan, "OCI "),
        "blocked" => (TextStyle::Red, ""),
        "injected" => (TextStyle::Red, "injected fault: "),
        "helper" => (TextStyle::Cyan, ""),
        "layers" => (TextStyle::Magenta, "layers: "),
        // The names of the built-in runtime's steps are descriptive already.
        _ if detail.source == "runtime" => (TextStyle::Dim, ""),
        _ => (TextStyle::Dim, "in "),
    };
    let command = detail.command.as_ref().map(|command| format!("{command} "));
    let command = command.unwrap_or_default();
    let activity = detail
        .doing
        .as_ref()
        .map(|activity| format!(": {activity}"))
        .unwrap_or_default();
    WaterfallRow {
        at: detail.offset_ms,
        took: detail.duration_ms,
        ink,
        name: match count {
            1 => format!("  {kind}{command}{}{activity}", detail.name),
            n => format!("  {kind}{command}{}{activity} x{n}", detail.name),
        },
        about: String::new(),
        detail: true,
        error: None,
        remarks: Vec::new(),
        bars: Vec::new(),
    }
}
