//! Rates, errors and latencies by method: `/debug/rpcz`.

use maud::{Markup, html};

use super::PageSources;
use super::table::{self, count, number, text};
use crate::lifecycle::tables::{RateWindow, RpcMethodRow, RpcTable, rpc_table};
use crate::units;

/// The rates of all methods.
pub(super) fn rates(sources: &PageSources) -> RpcTable {
    rpc_table(&sources.rates, &sources.in_flight.calls())
}

/// `/debug/rpcz`
pub(super) fn html(table: &RpcTable) -> Markup {
    if table.methods.is_empty() {
        return html! { p { "No calls yet." } };
    }
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
        (text("method")) (number("calls")) (number("per second")) (number("errors")) (number("routine")) (number("cancelled"))
        (number("p50")) (number("p95")) (number("p99")) (number("in flight")) (number("stuck")) (number("oldest"))
    };
    let rows = html! {
        @for row in &table.methods {
            @let window = part(row);
            tr {
                td { a href={ "/debug/flight?method=" (row.method) } { (row.method) } }
                td.n { (window.calls) }
                td.n { (format_args!("{:.2}", window.rate())) }
                td.n.late { (count(window.errors)) }
                td.n { (count(window.routine)) }
                td.n { (count(window.cancelled)) }
                td.n { (time(window.p50_ms)) }
                td.n { (time(window.p95_ms)) }
                td.n { (time(window.p99_ms)) }
                td.n { (count(row.in_flight)) }
                td.n.late { (count(row.stuck)) }
                td.n { (time(row.oldest_ms)) }
            }
        }
    };
    table::table(&columns, &rows)
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
