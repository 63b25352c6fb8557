//! Rates, errors and latencies by method: `/debug/rpcz`.

use maud::{Markup, html};

use super::PageSources;
use super::table::{self, count, number, text};
use super::verdict::Verdict;
use crate::lifecycle::tables::{RateWindow, RpcMethodRow, RpcTable, rpc_table};
use crate::units;

/// Most failing methods that the verdict names.
const MAX_FAILING_METHODS_NAMED: usize = 4;

/// The rates of all methods.
pub(super) fn rates(sources: &PageSources) -> RpcTable {
    rpc_table(&sources.rates, &sources.in_flight.calls())
}

/// `/debug/rpcz`
pub(super) fn html(table: &RpcTable) -> (Verdict, Markup) {
    if table.methods.is_empty() {
        let verdict = Verdict::empty("No call has ended since criscope started.");
        let body = html! {
            p.none {
                "Rates, errors and latencies of every method stand here once calls have ended. A kubelet that uses criscope makes some every second; "
                code { "criscope doctor" } " checks whether it does."
            }
        };
        return (verdict, body);
    }
    (verdict(table), windows(table))
}

/// The verdict over the calls of the last minute. It names the methods that failed, the most frequent first.
fn verdict(table: &RpcTable) -> Verdict {
    let calls: u64 = table.methods.iter().map(|row| row.minute.calls).sum();
    let mut failing: Vec<_> = table
        .methods
        .iter()
        .filter(|row| row.minute.errors > 0)
        .collect();
    failing.sort_by_key(|row| std::cmp::Reverse(row.minute.errors));
    let errors: u64 = failing.iter().map(|row| row.minute.errors).sum();
    let stuck: u64 = table.methods.iter().map(|row| row.stuck).sum();
    let stuck = match stuck {
        0 => String::new(),
        1 => " 1 call in flight is stuck.".to_owned(),
        n => format!(" {n} calls in flight are stuck."),
    };
    match (calls, &failing[..]) {
        (0, _) if stuck.is_empty() => Verdict::good("No call has ended in the last minute."),
        (_, []) if stuck.is_empty() => Verdict::good(format!(
            "None of the {calls} calls of the last minute failed."
        )),
        (_, []) => Verdict::warning(format!(
            "None of the {calls} calls of the last minute failed.{stuck}"
        )),
        (_, failing) => {
            let methods = failing.iter().take(MAX_FAILING_METHODS_NAMED);
            let methods: Vec<_> = methods
                .map(|row| format!("{} {}", row.minute.errors, row.method))
                .collect();
            Verdict::warning(format!(
                "{errors} of {calls} calls of the last minute failed: {}.{stuck}",
                methods.join(", ")
            ))
        }
    }
}

fn windows(table: &RpcTable) -> Markup {
    type WindowSelector = fn(&RpcMethodRow) -> &RateWindow;
    let parts: [(&str, f64, WindowSelector); 3] = [
        ("The last minute", 60.0, |row| &row.minute),
        ("The last hour", 3600.0, |row| &row.hour),
        ("Since the start", f64::INFINITY, |row| &row.all),
    ];
    html! {
        p {
            "Quantiles are estimated from the buckets of " code { "criscope_rpc_duration_seconds" } ". "
            a href="/debug/flight#samples" { "Samples of calls" }
        }
        @for (title, whole, part) in parts {
            @let seconds = table.methods.iter().map(|row| part(row).seconds).fold(0.0, f64::max);
            h2 { (title_of(title, whole, seconds)) }
            (window_table(table, part))
        }
    }
}

/// The title of a window of `whole` seconds, with its length if it covers less.
fn title_of(title: &str, whole: f64, seconds: f64) -> Markup {
    html! {
        (title)
        @if seconds <= whole * 0.9 {
            " " small.muted { (units::duration(seconds * 1e3)) @if whole.is_finite() { " since the start" } }
        }
    }
}

fn window_table(table: &RpcTable, part: fn(&RpcMethodRow) -> &RateWindow) -> Markup {
    let columns = html! {
        (text("method")) (number("calls")) (detail("per second")) (number("errors")) (detail("routine")) (detail("cancelled"))
        (number("p50")) (detail("p95")) (number("p99")) (detail("in flight")) (detail("stuck")) (detail("oldest"))
    };
    let rows = html! {
        @for row in &table.methods {
            @let window = part(row);
            tr {
                td { a href={ "/debug/flight?method=" (row.method) } { (row.method) } }
                td.n { (window.calls) }
                td.n.opt { (format_args!("{:.2}", window.rate())) }
                td.n.late { (count(window.errors)) }
                td.n.opt { (count(window.routine)) }
                td.n.opt { (count(window.cancelled)) }
                td.n { (time(window.p50_ms)) }
                td.n.opt { (time(window.p95_ms)) }
                td.n { (time(window.p99_ms)) }
                td.n.opt { (count(row.in_flight)) }
                td.n.opt.late { (count(row.stuck)) }
                td.n.opt { (time(row.oldest_ms)) }
            }
        }
    };
    table::table(&columns, &rows)
}

/// The heading of a column that is left out where it is narrow.
fn detail(name: &str) -> Markup {
    html! { th.n.opt scope="col" { (name) } }
}

fn time(ms: Option<f64>) -> String {
    ms.map(units::duration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_not_full_says_how_long_it_is() {
        let title = |title, whole, seconds| title_of(title, whole, seconds).into_string();
        assert_eq!(title("The last hour", 3600.0, 3599.0), "The last hour");
        assert_eq!(
            title("The last hour", 3600.0, 240.0),
            "The last hour <small class=\"muted\">4m 00s since the start</small>"
        );
        assert_eq!(
            title("Since the start", f64::INFINITY, 240.0),
            "Since the start <small class=\"muted\">4m 00s</small>"
        );
    }
}
