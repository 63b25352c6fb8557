//! Draws the list of pods.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{TerminalOutput, TextStyle, pad, pod, without_code_marks};
use crate::terminal::WaterfallStyle;
use crate::view::{BACK_OFF_PHASE, EpisodeView, PodList, PodState, PodSummary, VerdictLevel};
use criscope_cri::units;
use criscope_cri::units::times::UnixMicros;

/// Which columns, in how many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodColumns {
    /// Within the width. Below `REASON_COLUMN_FROM` columns the reason is written below its pod.
    Fitting,
    /// A line for each pod, nothing truncated.
    Lines,
    /// All columns, and uids.
    Wide,
}

/// Width from which the reason has a column.
const REASON_COLUMN_FROM: usize = 110;

/// Width from which phases have a column.
const PHASES_COLUMN_FROM: usize = 140;

/// Width from which restarts have a column.
const RESTARTS_COLUMN_FROM: usize = 76;

/// Width of the bar of phases.
const PHASE_BAR_WIDTH: usize = 24;

/// Width of the columns TOOK, AGE and RESTARTS, with the gap before them.
const TOOK_WIDTH: usize = 2 + 8;
const AGE_WIDTH: usize = 2 + 6;
const RESTARTS_WIDTH: usize = 2 + 8;

/// Widest name of a node.
const MAX_NODE_WIDTH: usize = 30;

/// Names up to this width are aligned where nothing is truncated; a longer one shifts its own line only.
const MAX_ALIGNED_NAME_WIDTH: usize = 60;

/// Most lines of a reason.
const MAX_REASON_LINES: usize = 3;

/// Phase, letter, word and colour, in the order of the bar.
const PHASES: [(&str, char, &str, TextStyle); 11] = [
    ("sandbox", 's', "sandbox", TextStyle::Blue),
    ("restore", 'r', "restore", TextStyle::Blue),
    ("network", 'N', "network", TextStyle::Yellow),
    ("image_pull", 'P', "image pull", TextStyle::Magenta),
    ("container_create", 'c', "create", TextStyle::Cyan),
    ("container_start", 't', "start", TextStyle::Green),
    ("init_container", 'i', "init container", TextStyle::Yellow),
    ("hook", 'h', "hook", TextStyle::Yellow),
    ("checkpoint", 'f', "frozen", TextStyle::Cyan),
    ("outside_cri", '.', "outside CRI", TextStyle::Dim),
    (BACK_OFF_PHASE, '-', "kubelet back-off", TextStyle::Dim),
];

/// The reason and the next step on one line.
fn with_next(pod: &PodSummary) -> String {
    match &pod.next {
        Some(next) => format!("{}; next: {}", pod.reason, without_code_marks(next)),
        None => pod.reason.clone(),
    }
}

/// The table, with namespaces if pods of several may be in it.
pub fn table(
    pods: &PodList,
    look: WaterfallStyle,
    columns: PodColumns,
    namespaces: bool,
) -> String {
    let paper = TerminalOutput::new(look);
    let layout = ColumnWidths::new(pods, paper, columns, namespaces);
    let mut text = layout.head();
    for pod in &pods.pods {
        layout.row(&mut text, pod, pods.now_unix_us);
    }
    if layout.bar {
        let _ = writeln!(text, "\n{}", legend(pods, paper));
    }
    text
}

/// The verdict over the node, for the top of a screen.
pub fn summary(pods: &PodList, look: WaterfallStyle) -> String {
    let paper = TerminalOutput::new(look);
    let ink = match pods.verdict.level() {
        VerdictLevel::Bad => TextStyle::Red,
        VerdictLevel::Warning => TextStyle::Yellow,
        VerdictLevel::Busy => TextStyle::Blue,
        VerdictLevel::Good => TextStyle::Green,
        VerdictLevel::Empty => TextStyle::Dim,
    };
    let verdict = paper.ink(ink, &paper.text(&pods.verdict.headline));
    let time = units::rfc3339(pods.now_unix_us);
    format!("{verdict}   {}\n\n", paper.ink(TextStyle::Dim, &time))
}

/// Widths of the columns.
#[derive(Clone, Copy, Debug)]
struct ColumnWidths {
    paper: TerminalOutput,
    columns: PodColumns,
    namespaces: bool,
    name: usize,
    state: usize,
    /// Width of the column NODE with the gap before it; 0 for a list of one node.
    node: usize,
    restarts: bool,
    bar: bool,
    /// Width of the column for reasons; `None` if reasons are written below their pods.
    reason: Option<usize>,
}

impl ColumnWidths {
    fn new(pods: &PodList, paper: TerminalOutput, columns: PodColumns, namespaces: bool) -> Self {
        let width = paper.width();
        let fits = columns == PodColumns::Fitting;
        let states = pods.pods.iter().map(|pod| pod.state.word().len());
        let state = states.fold(5, usize::max);
        let restarts = !fits || width >= RESTARTS_COLUMN_FROM;
        let bar = fits && width >= PHASES_COLUMN_FROM;
        let nodes = pods.pods.iter().filter_map(|pod| pod.node.as_ref());
        let nodes = nodes.map(|node| paper.text(node).chars().count().max(4) + 2);
        let node = nodes.max().unwrap_or(0);
        let node = if fits {
            node.min(MAX_NODE_WIDTH + 2)
        } else {
            node
        };
        let others =
            2 + state + node + TOOK_WIDTH + AGE_WIDTH + if restarts { RESTARTS_WIDTH } else { 0 };
        let mut layout = Self {
            paper,
            columns,
            namespaces,
            name: 0,
            state,
            node,
            restarts,
            bar,
            reason: None,
        };
        let names = pods.pods.iter().map(|pod| layout.whole_name(pod));
        let widest = names.map(|name| name.chars().count()).fold(4, usize::max);
        layout.name = match (fits, width) {
            (false, _) => widest.min(MAX_ALIGNED_NAME_WIDTH),
            (true, REASON_COLUMN_FROM..) => widest.min(width * 3 / 10),
            (true, _) => widest.min(width.saturating_sub(others)),
        };
        let used = layout.name + others + 2 + if bar { PHASE_BAR_WIDTH + 2 } else { 0 };
        layout.reason = match (fits, width) {
            (false, _) => Some(usize::MAX),
            (true, REASON_COLUMN_FROM..) => Some(width.saturating_sub(used)),
            (true, _) => None,
        };
        layout
    }

    fn head(self) -> String {
        let mut line = format!("{}  {}", pad("POD", self.name), pad("STATE", self.state));
        if self.node > 0 {
            let _ = write!(line, "  {}", pad("NODE", self.node - 2));
        }
        if self.restarts {
            line += "  RESTARTS";
        }
        let _ = write!(line, "  {:>8}  {}", "TOOK", pad("AGE", AGE_WIDTH - 2));
        if self.bar {
            let _ = write!(line, "  {}", pad("PHASES", PHASE_BAR_WIDTH));
        }
        if self.columns == PodColumns::Wide {
            let _ = write!(line, "  {}", pad("UID", 36));
        }
        if self.reason.is_some() {
            line += "  REASON";
        }
        format!("{}\n", self.paper.ink(TextStyle::Dim, line.trim_end()))
    }

    fn row(self, text: &mut String, pod: &PodSummary, now: UnixMicros) {
        let paper = self.paper;
        let state = paper.ink(ink(pod.state), &pad(pod.state.word(), self.state));
        let mut rest = String::new();
        if self.node > 0 {
            let node = self.paper.text(pod.node.as_deref().unwrap_or_default());
            let node = self.paper.cut_middle(&node, self.node - 2);
            let _ = write!(rest, "  {}", pad(&node, self.node - 2));
        }
        if self.restarts {
            let _ = write!(rest, "  {:>8}", pod.restarts);
        }
        let took = pod.took();
        let age = units::ago(now.since(pod.aged_from()));
        let _ = write!(rest, "  {took:>8}  {}", pad(&age, AGE_WIDTH - 2));
        if self.columns == PodColumns::Wide {
            let _ = write!(rest, "  {}", pad(&paper.text(&pod.uid), 36));
        }
        let name = self.faint_if_gone(pod, pad(&self.name(pod), self.name));
        let bar = if self.bar {
            format!("  {}", phases(&pod.episode, paper))
        } else {
            String::new()
        };
        let lines = self.reason(pod);
        let rest = self.faint_if_gone(pod, rest);
        let begin = format!("{name}  {state}{rest}{bar}");
        let Some(_) = self.reason else {
            let _ = writeln!(text, "{}", begin.trim_end());
            for line in lines {
                let _ = writeln!(text, "  {}", self.faint_if_gone(pod, line));
            }
            return;
        };
        let mut lines = lines.into_iter();
        let first = self.faint_if_gone(pod, lines.next().unwrap_or_default());
        let _ = writeln!(text, "{}", format!("{begin}  {first}").trim_end());
        let others = self.name + 2 + self.state + self.node + TOOK_WIDTH + AGE_WIDTH;
        let indent = others + 2 + RESTARTS_WIDTH + if self.bar { PHASE_BAR_WIDTH + 2 } else { 0 };
        for line in lines {
            let line = self.faint_if_gone(pod, line);
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
    }

    fn faint_if_gone(self, pod: &PodSummary, text: String) -> String {
        if pod.state == PodState::Gone {
            self.paper.ink(TextStyle::Dim, &text)
        } else {
            text
        }
    }

    /// The lines of the reason; none if it goes without saying and there is no column for it.
    fn reason(self, pod: &PodSummary) -> Vec<String> {
        let most = match pod.state {
            PodState::Gone => 1,
            PodState::Ok | PodState::Completed => 2,
            _ => MAX_REASON_LINES,
        };
        match (self.columns, self.reason) {
            (PodColumns::Lines, _) => vec![self.paper.text(&pod.reason)],
            (PodColumns::Wide, _) => vec![self.paper.text(&with_next(pod))],
            (_, Some(room)) if !pod.notable => vec![self.paper.cut(&pod.reason, room)],
            (_, Some(room)) => self.paper.wrapped_to(&pod.reason, room, most),
            (_, None) if !pod.notable => Vec::new(),
            (_, None) => {
                let room = self.paper.width().saturating_sub(2);
                self.paper.wrapped_to(&pod.reason, room, most)
            }
        }
    }

    fn whole_name(self, it: &PodSummary) -> String {
        let name = if self.namespaces {
            pod(&it.namespace, &it.name)
        } else {
            it.name.clone()
        };
        self.paper.text(&name)
    }

    /// The name, truncated in its middle: names of one Deployment differ at their ends. A long namespace is truncated first.
    fn name(self, it: &PodSummary) -> String {
        let whole = self.whole_name(it);
        if self.columns != PodColumns::Fitting || whole.chars().count() <= self.name {
            return whole;
        }
        if !self.namespaces {
            return self.paper.cut_middle(&it.name, self.name);
        }
        let namespace = self.paper.cut_middle(&it.namespace, self.name / 3);
        let left = self.name.saturating_sub(namespace.chars().count() + 1);
        format!("{namespace}/{}", self.paper.cut_middle(&it.name, left))
    }
}

/// The colour of a state.
fn ink(state: PodState) -> TextStyle {
    match state {
        PodState::Failing | PodState::Failed => TextStyle::Red,
        PodState::CrashLoop | PodState::Stopped => TextStyle::Yellow,
        PodState::Starting | PodState::Stopping => TextStyle::Blue,
        PodState::Ok | PodState::Completed => TextStyle::Green,
        PodState::Gone => TextStyle::Dim,
    }
}

/// The phases in sequence, a letter per cell. The full bar is the whole episode.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
fn phases(episode: &EpisodeView, paper: TerminalOutput) -> String {
    let shown = episode.shown_phases();
    let whole: f64 = shown.iter().map(|phase| phase.ms).sum();
    let (mut text, mut at, mut filled) = (String::new(), 0.0, 0);
    for phase in &shown {
        at += phase.ms;
        let share = at / whole.max(0.001);
        let to = ((share * PHASE_BAR_WIDTH as f64).round() as usize).min(PHASE_BAR_WIDTH);
        let known = PHASES.iter().find(|(name, ..)| *name == phase.phase);
        let (letter, ink) =
            known.map_or(('?', TextStyle::Dim), |(_, letter, _, ink)| (*letter, *ink));
        let cells = letter.to_string().repeat(to.saturating_sub(filled));
        text.push_str(&paper.ink(ink, &cells));
        filled = filled.max(to);
    }
    text.push_str(&" ".repeat(PHASE_BAR_WIDTH - filled));
    text
}

/// The letters of the phases that occur.
fn legend(pods: &PodList, paper: TerminalOutput) -> String {
    let shown = pods.pods.iter().flat_map(|pod| pod.episode.shown_phases());
    let shown: HashSet<_> = shown.map(|phase| phase.phase).collect();
    let words = PHASES.iter().filter(|(name, ..)| shown.contains(*name));
    let words = words.map(|(_, letter, word, ink)| {
        let letter = paper.ink(*ink, &letter.to_string());
        format!("{letter} {word}")
    });
    words.collect::<Vec<_>>().join("   ")
}
