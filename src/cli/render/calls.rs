//! Calls in flight and rates per method, as a screen.

use super::{Ink, Paper, image, pad, pod};
use crate::smoke::waterfall::Look;
use crate::story::tables::{RpcRow, RpcTable};
use crate::story::view::Running;
use crate::units;

/// The least columns for a method's name, and the most.
const METHOD: (usize, usize) = (14, 25);
/// Columns of a deadline.
const DEADLINE: usize = 22;

/// The screen: at most `height` lines, if that is given.
pub(crate) fn screen(
    address: &str,
    calls: &[Running],
    table: &RpcTable,
    look: Look,
    height: Option<usize>,
) -> String {
    let paper = Paper::new(look);
    let mut lines = vec![summary(address, calls, table, paper), String::new()];
    in_flight(&mut lines, calls, height, paper);
    lines.push(String::new());
    methods(&mut lines, table, paper);
    if let Some(height) = height {
        lines.truncate(height.max(1));
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn summary(address: &str, calls: &[Running], table: &RpcTable, paper: Paper) -> String {
    let rates = table.methods.iter().map(|row| row.minute.rate());
    // Not sum(): that of nothing is -0.
    let rate = rates.fold(0.0, |a, b| a + b);
    let stuck = calls.iter().filter(|row| row.stuck_percent > 0).count();
    let stuck = match stuck {
        0 => String::new(),
        n => paper.ink(Ink::Yellow, &format!(", {n} stuck")),
    };
    format!(
        "{}  {} in flight{stuck}, {rate:.1} calls/s",
        paper.ink(Ink::Bold, &format!("criscope {}", paper.text(address))),
        calls.len()
    )
}

fn in_flight(lines: &mut Vec<String>, calls: &[Running], height: Option<usize>, paper: Paper) {
    if calls.is_empty() {
        lines.push("No call is in flight.".to_owned());
        return;
    }
    let name = names(calls.iter().map(|row| row.method.as_str()));
    let fixed = name + 2 + 8 + 2 + DEADLINE + 2 + 10 + 2;
    let subject = paper.width().saturating_sub(fixed).max(16);
    let head = format!(
        "{:<name$}  {:>8}  {:<DEADLINE$}  {:<10}  POD, CONTAINER OR IMAGE",
        "CALL", "AGE", "DEADLINE", "PHASE"
    );
    lines.push(paper.ink(Ink::Dim, &paper.cut(&head, paper.width())));
    // The oldest first, and room for the rates below them.
    let most = height.map_or(usize::MAX, |height| (height / 2).max(4));
    for row in calls.iter().take(most) {
        lines.push(call(row, (name, subject), paper));
    }
    if calls.len() > most {
        lines.push(paper.ink(Ink::Dim, &format!("and {} more", calls.len() - most)));
    }
}

#[allow(clippy::cast_precision_loss)]
fn call(row: &Running, (name, about): (usize, usize), paper: Paper) -> String {
    let mut deadline = match (row.share(), row.deadline_ms()) {
        (Some(share), Some(whole)) => {
            format!("{share} % of {}", units::duration(whole as f64))
        }
        _ => "none".to_owned(),
    };
    // In words too, where there is no colour.
    if row.stuck_percent > 0 {
        deadline.push_str(", stuck");
    }
    let line = format!(
        "{}  {:>8}  {}  {}  {}",
        pad(&paper.cut(&row.method, name), name),
        units::duration(row.age_ms as f64),
        pad(&paper.cut(&deadline, DEADLINE), DEADLINE),
        pad(&paper.cut(&row.phase, 10), 10),
        paper.cut(&subject(row), about)
    );
    match row.stuck_percent {
        0 => line.trim_end().to_owned(),
        _ => paper.ink(Ink::Yellow, line.trim_end()),
    }
}

/// Columns for the longest of these names.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let longest = names.map(|name| name.chars().count()).max();
    longest.unwrap_or_default().clamp(METHOD.0, METHOD.1)
}

fn subject(row: &Running) -> String {
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

fn methods(lines: &mut Vec<String>, table: &RpcTable, paper: Paper) {
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
    let name = names(rows.iter().map(|row| row.method.as_str()));
    let head = format!(
        "{:<name$}  {:>8}  {:>8}  {:>8}  {:>8}",
        "LAST MINUTE", "CALLS/S", "ERRORS", "P50", "P99"
    );
    lines.push(paper.ink(Ink::Dim, &head));
    lines.extend(rows.into_iter().map(|row| method(row, name, paper)));
}

fn method(row: &RpcRow, name: usize, paper: Paper) -> String {
    let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), units::duration);
    let errors = format!("{:>8}", row.minute.errors);
    let errors = match row.minute.errors {
        0 => errors,
        _ => paper.ink(Ink::Red, &errors),
    };
    format!(
        "{}  {:>8.1}  {errors}  {:>8}  {:>8}",
        pad(&paper.cut(&row.method, name), name),
        row.minute.rate(),
        time(row.minute.p50_ms),
        time(row.minute.p99_ms),
    )
}
