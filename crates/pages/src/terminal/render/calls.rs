//! Draws calls in flight, open sessions and rates per method.

use super::{TerminalOutput, TextStyle, image, pad, pod};
use crate::tables::{RpcMethodRow, RpcTable};
use crate::terminal::WaterfallStyle;
use crate::view::{CallView, OpenSessionView};
use criscope_cri::units;

/// Minimum and maximum width of the method column.
const METHOD_WIDTHS: (usize, usize) = (14, 25);
/// Width of the column for deadlines, or bytes of a session.
const DEADLINE_WIDTH: usize = 22;
/// Width of the column for phases, or callers of a session.
const PHASE_WIDTH: usize = 10;

/// Contents of the screen.
#[derive(Debug, Default)]
pub struct CallsScreen {
    /// Calls in flight, the oldest first.
    pub calls: Vec<CallView>,
    /// Open sessions, the oldest first.
    pub sessions: Vec<OpenSessionView>,
    /// The rates.
    pub methods: RpcTable,
}

/// Draws the screen, with at most `height` lines if that is given.
pub fn screen(
    address: &str,
    now: &CallsScreen,
    look: WaterfallStyle,
    height: Option<usize>,
) -> String {
    let paper = TerminalOutput::new(look);
    let mut lines = vec![summary(address, now, paper), String::new()];
    // One width for both tables, so that their columns align.
    let methods_of = now.calls.iter().map(|row| row.method.clone());
    let name = names(methods_of.chain(now.sessions.iter().map(what)));
    let fixed = name + 2 + 8 + 2 + DEADLINE_WIDTH + 2 + PHASE_WIDTH + 2;
    let columns = (name, paper.width().saturating_sub(fixed).max(16));
    // The oldest first, with space for the rates below.
    let height_or_all = height.unwrap_or(usize::MAX);
    if now.sessions.is_empty() {
        let max_calls = (height_or_all / 2).max(4);
        in_flight(&mut lines, &now.calls, columns, max_calls, paper);
    } else {
        let (max_calls, max_sessions) = ((height_or_all / 3).max(4), (height_or_all / 6).max(2));
        in_flight(&mut lines, &now.calls, columns, max_calls, paper);
        lines.push(String::new());
        open(&mut lines, &now.sessions, columns, max_sessions, paper);
    }
    lines.push(String::new());
    methods(&mut lines, &now.methods, paper);
    if let Some(height) = height {
        lines.truncate(height.max(1));
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn summary(address: &str, now: &CallsScreen, paper: TerminalOutput) -> String {
    let rates = now.methods.methods.iter().map(|row| row.minute.rate());
    // Not sum(): the sum of no numbers is -0.
    let rate = rates.fold(0.0, |a, b| a + b);
    let stuck = now.calls.iter().filter(|row| row.stuck.is_some()).count();
    let stuck = match stuck {
        0 => String::new(),
        n => paper.ink(TextStyle::Yellow, &format!(", {n} stuck")),
    };
    let sessions = match now.sessions.len() {
        0 => String::new(),
        1 => ", 1 session".to_owned(),
        n => format!(", {n} sessions"),
    };
    format!(
        "{}  {} in flight{stuck}{sessions}, {rate:.1} calls/s",
        paper.ink(
            TextStyle::Bold,
            &format!("criscope {}", paper.text(address))
        ),
        now.calls.len()
    )
}

fn in_flight(
    lines: &mut Vec<String>,
    calls: &[CallView],
    (name, subject): (usize, usize),
    most: usize,
    paper: TerminalOutput,
) {
    if calls.is_empty() {
        lines.push("No call is in flight.".to_owned());
        return;
    }
    let head = format!(
        "{:<name$}  {:>8}  {:<DEADLINE_WIDTH$}  {:<PHASE_WIDTH$}  POD, CONTAINER OR IMAGE",
        "CALL", "AGE", "DEADLINE", "PHASE"
    );
    lines.push(paper.ink(TextStyle::Dim, &paper.cut(&head, paper.width())));
    for row in calls.iter().take(most) {
        lines.push(call(row, (name, subject), paper));
    }
    more(lines, calls.len(), most, paper);
}

/// The number of rows that do not fit.
fn more(lines: &mut Vec<String>, rows: usize, most: usize, paper: TerminalOutput) {
    if rows > most {
        lines.push(paper.ink(TextStyle::Dim, &format!("and {} more", rows - most)));
    }
}

fn open(
    lines: &mut Vec<String>,
    sessions: &[OpenSessionView],
    (name, subject): (usize, usize),
    most: usize,
    paper: TerminalOutput,
) {
    let head = format!(
        "{:<name$}  {:>8}  {:<DEADLINE_WIDTH$}  {:<PHASE_WIDTH$}  POD, CONTAINER",
        "SESSION", "OPEN FOR", "BYTES IN, OUT", "ASKED BY"
    );
    lines.push(paper.ink(TextStyle::Dim, &paper.cut(&head, paper.width())));
    for row in sessions.iter().take(most) {
        lines.push(session(row, (name, subject), paper));
    }
    more(lines, sessions.len(), most, paper);
}

fn session(row: &OpenSessionView, (name, about): (usize, usize), paper: TerminalOutput) -> String {
    let session = &row.session;
    let bytes = [session.bytes_in, session.bytes_out].map(units::bytes);
    let client = session.client.as_deref().unwrap_or_default();
    let pod = match (&row.namespace, &row.pod) {
        (Some(namespace), Some(name)) => pod(namespace, name),
        _ => row.id.chars().take(13).collect(),
    };
    let container = session.container.as_deref().unwrap_or_default();
    let line = format!(
        "{}  {:>8}  {}  {}  {}",
        pad(&paper.cut(&what(row), name), name),
        units::duration(session.duration_ms),
        pad(
            &paper.cut(&bytes.join(", "), DEADLINE_WIDTH),
            DEADLINE_WIDTH
        ),
        pad(&paper.cut(client, PHASE_WIDTH), PHASE_WIDTH),
        paper.cut(format!("{pod} {container}").trim_end(), about)
    );
    line.trim_end().to_owned()
}

/// `exec sh`, `portforward`.
fn what(row: &OpenSessionView) -> String {
    let session = &row.session;
    match &session.program {
        Some(program) => format!("{} {program}", session.kind),
        None => session.kind.clone(),
    }
}

fn call(row: &CallView, (name, about): (usize, usize), paper: TerminalOutput) -> String {
    let mut deadline = match (row.share(), row.deadline_ms) {
        (Some(share), Some(whole)) => {
            format!("{share} % of {}", units::duration(whole))
        }
        _ => "none".to_owned(),
    };
    // A word too, for output without colours.
    if row.stuck.is_some() {
        deadline.push_str(", stuck");
    }
    let line = format!(
        "{}  {:>8}  {}  {}  {}",
        pad(&paper.cut(&row.method, name), name),
        units::duration(row.duration_ms),
        pad(&paper.cut(&deadline, DEADLINE_WIDTH), DEADLINE_WIDTH),
        pad(
            &paper.cut(row.phase.as_deref().unwrap_or_default(), PHASE_WIDTH),
            PHASE_WIDTH
        ),
        paper.cut(&subject(row), about)
    );
    match row.stuck {
        None => line.trim_end().to_owned(),
        Some(_) => paper.ink(TextStyle::Yellow, line.trim_end()),
    }
}

/// Width of the longest of these names.
fn names(names: impl Iterator<Item = String>) -> usize {
    let longest = names.map(|name| name.chars().count()).max();
    longest
        .unwrap_or_default()
        .clamp(METHOD_WIDTHS.0, METHOD_WIDTHS.1)
}

fn subject(row: &CallView) -> String {
    let pod = match (&row.namespace, &row.pod, &row.sandbox_id) {
        (Some(namespace), Some(name), _) => pod(namespace, name),
        (_, _, Some(id)) => id.chars().take(13).collect(),
        _ => String::new(),
    };
    let rest = match (&row.container, &row.image, &row.container_id) {
        (Some(container), ..) => container.clone(),
        (None, Some(name), _) => image(name),
        (None, None, Some(id)) => id.chars().take(13).collect(),
        (None, None, None) => String::new(),
    };
    format!("{pod} {rest}").trim().to_owned()
}

fn methods(lines: &mut Vec<String>, table: &RpcTable, paper: TerminalOutput) {
    let mut rows: Vec<_> = table
        .methods
        .iter()
        .filter(|row| row.all.calls > 0)
        .collect();
    if rows.is_empty() {
        lines.push("No call has ended yet.".to_owned());
        return;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.minute.calls));
    let name = names(rows.iter().map(|row| row.method.clone()));
    let head = format!(
        "{:<name$}  {:>8}  {:>8}  {:>8}  {:>8}",
        "LAST MINUTE", "CALLS/S", "ERRORS", "P50", "P99"
    );
    lines.push(paper.ink(TextStyle::Dim, &head));
    lines.extend(rows.into_iter().map(|row| method(row, name, paper)));
}

fn method(row: &RpcMethodRow, name: usize, paper: TerminalOutput) -> String {
    let quantiles = [row.minute.p50_ms, row.minute.p99_ms];
    let [median, p99] = quantiles.map(|ms| ms.map_or_else(|| "-".to_owned(), units::duration));
    let errors = format!("{:>8}", row.minute.errors);
    let errors = match row.minute.errors {
        0 => errors,
        _ => paper.ink(TextStyle::Red, &errors),
    };
    format!(
        "{}  {:>8.1}  {errors}  {median:>8}  {p99:>8}",
        pad(&paper.cut(&row.method, name), name),
        row.minute.rate(),
    )
}
