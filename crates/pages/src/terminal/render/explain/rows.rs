//! The lines of the waterfall of a pod: calls, equal tries, waits, and the work within a call.

use std::fmt::Write as _;

use crate::terminal::render::{TerminalOutput, TextStyle, image};
use crate::view::{
    CallDetail, CallView, InitContainerWaitView, PodSyncView, RepeatedTries, WaitGap,
    WaterfallAxis, details,
};
use criscope_cri::units;

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
    /// Draws the bar, or bars, of the row in `room` columns that represent the axis.
    pub(super) fn bar(&self, axis: &WaterfallAxis, room: usize, paper: TerminalOutput) -> String {
        let own = [(self.at, self.took)];
        let bars = if self.bars.is_empty() {
            &own
        } else {
            &self.bars[..]
        };
        let bars = bars.iter().map(|(at, took)| {
            let (from, to) = (axis.place(*at), axis.place(at + took));
            paper.bar((from, to - from), 1.0, room)
        });
        let all = bars.reduce(|a, b| {
            let behind = b.chars().chain(std::iter::repeat(' '));
            let both = a.chars().zip(behind);
            let both: String = both.map(|(a, b)| if a == ' ' { b } else { a }).collect();
            let rest: String = b.chars().skip(a.chars().count()).collect();
            both + &rest
        });
        all.unwrap_or_default()
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

/// The line of a time without a call. Its length stands in a column of its own.
pub(super) fn gap(gap: &WaitGap) -> WaterfallRow {
    WaterfallRow {
        at: gap.begin_ms,
        took: gap.duration_ms(),
        ink: TextStyle::Dim,
        name: gap.name().to_owned(),
        about: if gap.is_over { "" } else { "so far" }.to_owned(),
        detail: true,
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
    let ink = match detail.what.as_str() {
        "cni" => TextStyle::Yellow,
        "oci" | "helper" => TextStyle::Cyan,
        "blocked" | "injected" => TextStyle::Red,
        "layers" => TextStyle::Magenta,
        _ => TextStyle::Dim,
    };
    WaterfallRow {
        at: detail.offset_ms,
        took: detail.duration_ms,
        ink,
        name: format!("  {}", detail.label(count)),
        about: String::new(),
        detail: true,
        error: None,
        remarks: Vec::new(),
        bars: Vec::new(),
    }
}
