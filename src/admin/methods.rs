//! Rates, errors and latency per method, for the live page.

use maud::{Markup, html};

use super::table::{fact, number, text, wide};
use crate::lifecycle::tables::{RpcMethodRow, RpcTable};
use crate::units;

/// Most methods shown.
const MAX_METHODS_SHOWN: usize = 12;

/// The methods with the most calls of the last minute.
pub(super) fn table(table: &RpcTable) -> Markup {
    let rows = busiest(table);
    if rows.is_empty() {
        return html! { p.none { "No call has ended yet." } };
    }
    let columns = html! { (text("Method")) (number("Calls/s")) (number("Errors")) (number("p50")) (number("p99")) };
    let rows = html! {
        @for row in rows {
            tr {
                th scope="row" { (row.method) }
                td.n { (format_args!("{:.1}", row.minute.rate())) }
                td.n { (errors(row.minute.errors)) }
                td.n { (quantile(row.minute.p50_ms)) }
                td.n { (quantile(row.minute.p99_ms)) }
            }
        }
    };
    wide(
        "Methods",
        "Calls that ended in the last minute, by method",
        &columns,
        &rows,
    )
}

fn quantile(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), units::duration)
}

fn errors(n: u64) -> Markup {
    html! { @if n > 0 { span.bad { "✗ " (n) } } @else { "0" } }
}

/// Methods with errors first, then the busiest.
fn busiest(table: &RpcTable) -> Vec<&RpcMethodRow> {
    let mut rows: Vec<_> = table
        .methods
        .iter()
        .filter(|row| row.all.calls > 0)
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.minute.errors, row.minute.calls)));
    rows.truncate(MAX_METHODS_SHOWN);
    rows
}

/// Calls per second and errors of the last minute, for the facts at the top.
pub(super) fn facts(table: &RpcTable) -> Markup {
    let rates = table.methods.iter().map(|row| row.minute.rate());
    // Not sum(), which is -0 for an empty iterator.
    let rate = rates.fold(0.0, |a, b| a + b);
    let failed = table.methods.iter().map(|row| row.minute.errors).sum();
    let routine: u64 = table.methods.iter().map(|row| row.minute.routine).sum();
    html! {
        (fact("Calls", format_args!("{rate:.1}/s")))
        (fact("Errors", html! {
            (errors(failed)) " "
            small {
                "in the last minute"
                @if routine > 0 { "; " (routine) " expected (NOT_FOUND for a removed container)" }
            }
        }))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lifecycle::tables::RateWindow;

    /// A method with so many calls and errors in the last minute.
    pub(crate) fn row(method: &str, calls: u64, errors: u64, ms: f64) -> RpcMethodRow {
        let window = RateWindow {
            seconds: 60.0,
            calls,
            errors,
            p50_ms: (calls > 0).then_some(ms),
            p99_ms: (calls > 0).then_some(ms * 4.0),
            ..RateWindow::default()
        };
        RpcMethodRow {
            method: method.to_owned(),
            all: RateWindow {
                calls: calls + 1,
                ..window.clone()
            },
            minute: window,
            ..RpcMethodRow::default()
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
        let html = table(&it).into_string();
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
        let facts = facts(&it).into_string();
        assert!(facts.contains("4.2/s"), "{facts}");
        assert!(!facts.contains("routine"), "{facts}");
        let none = table(&RpcTable::default()).into_string();
        assert!(none.contains("No call has ended"), "{none}");
    }
}
