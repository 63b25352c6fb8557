//! Rates, errors and latency per method, for the live page.

use std::fmt::Write as _;

use super::page::Escaped;
use crate::lifecycle::tables::{RpcRow, RpcTable};
use crate::units;

/// Methods that are shown.
const MOST: usize = 12;

/// The methods with the most calls of the last minute.
pub(super) fn table(table: &RpcTable) -> String {
    let rows = busiest(table);
    if rows.is_empty() {
        return "<p class=\"none\">No call has ended yet.</p>".to_owned();
    }
    let mut html = String::from(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Methods\"><table>\
         <caption class=\"vh\">Calls that ended in the last minute, by method</caption><thead><tr>\
         <th scope=\"col\">Method</th><th scope=\"col\" class=\"n\">Calls/s</th><th scope=\"col\" class=\"n\">Errors</th>\
         <th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p99</th></tr></thead><tbody>",
    );
    for row in rows {
        // Writing to a String does not fail.
        let _ = write_row(&mut html, row);
    }
    html.push_str("</tbody></table></div>");
    html
}

/// The busiest first; with errors before that, because they are looked for.
fn busiest(table: &RpcTable) -> Vec<&RpcRow> {
    let mut rows: Vec<_> = table
        .methods
        .iter()
        .filter(|row| row.all.calls > 0)
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.minute.errors, row.minute.calls)));
    rows.truncate(MOST);
    rows
}

fn write_row(html: &mut String, row: &RpcRow) -> std::fmt::Result {
    let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), units::duration);
    let errors = match row.minute.errors {
        0 => "0".to_owned(),
        n => format!("<span class=\"bad\">✗ {n}</span>"),
    };
    write!(
        html,
        "<tr><th scope=\"row\">{}</th><td class=\"n\">{:.1}</td><td class=\"n\">{errors}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td></tr>",
        Escaped(&row.method),
        row.minute.rate(),
        time(row.minute.p50_ms),
        time(row.minute.p99_ms)
    )
}

/// Calls a second and errors of the last minute, for the facts at the top.
pub(super) fn facts(table: &RpcTable) -> String {
    let rates = table.methods.iter().map(|row| row.minute.rate());
    // Not sum(): that of nothing is -0.
    let rate = rates.fold(0.0, |a, b| a + b);
    let errors: u64 = table.methods.iter().map(|row| row.minute.errors).sum();
    let errors = match errors {
        0 => "0".to_owned(),
        n => format!("<span class=\"bad\">✗ {n}</span>"),
    };
    format!(
        "<div><dt>Calls</dt><dd>{rate:.1}/s</dd></div>\
         <div><dt>Errors</dt><dd>{errors} <small>in the last minute</small></dd></div>"
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lifecycle::tables::Window;

    /// A method with so many calls and errors in the last minute.
    pub(in super::super) fn row(method: &str, calls: u64, errors: u64, ms: f64) -> RpcRow {
        let window = Window {
            seconds: 60.0,
            calls,
            errors,
            p50_ms: (calls > 0).then_some(ms),
            p99_ms: (calls > 0).then_some(ms * 4.0),
            ..Window::default()
        };
        RpcRow {
            method: method.to_owned(),
            all: Window {
                calls: calls + 1,
                ..window.clone()
            },
            minute: window,
            ..RpcRow::default()
        }
    }

    #[test]
    fn errors_come_first_then_the_busiest() {
        let it = RpcTable {
            methods: vec![
                row("Status", 12, 0, 0.4),
                row("PullImage", 1, 1, 900.0),
                row("ContainerStatus", 240, 0, 0.8),
                row("RemoveImage", 0, 0, 0.0),
            ],
            ..RpcTable::default()
        };
        let html = table(&it);
        let at = |method: &str| html.find(&format!(">{method}<")).expect("there");
        assert!(at("PullImage") < at("ContainerStatus") && at("ContainerStatus") < at("Status"));
        assert!(
            html.contains("✗ 1") && html.contains("<td class=\"n\">4.0</td>"),
            "{html}"
        );
        assert!(
            html.contains("<td class=\"n\">-</td>"),
            "no calls, no latency: {html}"
        );
        assert!(facts(&it).contains("4.2/s"), "{}", facts(&it));
        assert!(super::table(&RpcTable::default()).contains("No call has ended"));
    }
}
