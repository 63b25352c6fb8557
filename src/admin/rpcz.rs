//! How many calls of each method, how many errors and how long: `/debug/rpcz`.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};

use super::Sources;
use super::calls::Format;
use super::figures::count;
use super::page::page_at;
use crate::lifecycle::tables::{RpcRow, RpcTable, Window, rpc_table};
use crate::units;

/// `/debug/rpcz`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let table = rpc_table(&sources.rates, &sources.in_flight.calls());
    match format.is_json() {
        true => Json(table).into_response(),
        false => page_at("/debug/rpcz", "Calls by method", &html(&table)).into_response(),
    }
}

fn html(table: &RpcTable) -> String {
    if table.methods.is_empty() {
        return "<p>No call has come yet.</p>".to_owned();
    }
    let mut html = String::from(
        "<p>Quantiles are estimated from the buckets of <code>criscope_rpc_duration_seconds</code>. \
         <a href=\"/debug/tracez\">Samples of calls</a></p>\n",
    );
    type Part = fn(&RpcRow) -> &Window;
    let parts: [(&str, f64, Part); 3] = [
        ("The last minute", 60.0, |row| &row.minute),
        ("The last hour", 3600.0, |row| &row.hour),
        ("Since the start", f64::INFINITY, |row| &row.all),
    ];
    for (title, whole, part) in parts {
        let seconds = table.methods.iter().map(|row| part(row).seconds);
        let title = title_of(title, whole, seconds.fold(0.0, f64::max));
        // Writing to a String does not fail.
        let _ = write_part(&mut html, &title, table, part);
    }
    html
}

/// The title of a window of `whole` seconds, and how long it is if that is less.
fn title_of(title: &str, whole: f64, seconds: f64) -> String {
    if seconds > whole * 0.9 {
        return title.to_owned();
    }
    let since = if whole.is_finite() {
        " since the start"
    } else {
        ""
    };
    format!(
        "{title} <small class=\"muted\">{}{since}</small>",
        units::duration(seconds * 1e3)
    )
}

fn write_part(
    html: &mut String,
    title: &str,
    table: &RpcTable,
    part: fn(&RpcRow) -> &Window,
) -> std::fmt::Result {
    html.push_str(&format!("<h2>{title}</h2>\n"));
    html.push_str(
        "<table><thead><tr><th scope=\"col\">method</th><th scope=\"col\" class=\"n\">calls</th>\
         <th scope=\"col\" class=\"n\">a second</th><th scope=\"col\" class=\"n\">errors</th><th scope=\"col\" class=\"n\">cancelled</th>\
         <th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p95</th><th scope=\"col\" class=\"n\">p99</th><th scope=\"col\" class=\"n\">in flight</th>\
         <th scope=\"col\" class=\"n\">stuck</th><th scope=\"col\" class=\"n\">oldest</th></tr></thead><tbody>\n",
    );
    let time = |ms: Option<f64>| ms.map(units::duration).unwrap_or_default();
    for row in &table.methods {
        let window = part(row);
        writeln!(
            html,
            "<tr><td><a href=\"/debug/tracez?method={0}\">{0}</a></td><td class=\"n\">{1}</td>\
             <td class=\"n\">{2:.2}</td><td class=\"n late\">{3}</td><td class=\"n\">{4}</td><td class=\"n\">{5}</td>\
             <td class=\"n\">{6}</td><td class=\"n\">{7}</td><td class=\"n\">{8}</td><td class=\"n late\">{9}</td>\
             <td class=\"n\">{10}</td></tr>",
            row.method,
            window.calls,
            window.rate(),
            count(window.errors),
            count(window.cancelled),
            time(window.p50_ms),
            time(window.p95_ms),
            time(window.p99_ms),
            count(row.in_flight),
            count(row.stuck),
            time(row.oldest_ms),
        )?;
    }
    html.push_str("</tbody></table>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_not_full_says_how_long_it_is() {
        assert_eq!(title_of("The last hour", 3600.0, 3599.0), "The last hour");
        assert_eq!(
            title_of("The last hour", 3600.0, 240.0),
            "The last hour <small class=\"muted\">4m 00s since the start</small>"
        );
        assert_eq!(
            title_of("Since the start", f64::INFINITY, 240.0),
            "Since the start <small class=\"muted\">4m 00s</small>"
        );
    }
}
