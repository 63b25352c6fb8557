//! How many calls of each method, how many errors and how long: `/debug/rpcz`.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};

use super::Sources;
use super::calls::Format;
use super::figures::{count, time, time_if};
use super::page::page_at;
use crate::story::tables::{RpcRow, RpcTable, Window, rpc_table};

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
    let parts: [(&str, Part); 3] = [
        ("The last minute", |row| &row.minute),
        ("The last hour", |row| &row.hour),
        ("Since the start", |row| &row.all),
    ];
    for (title, part) in parts {
        // Writing to a String does not fail.
        let _ = write_part(&mut html, title, table, part);
    }
    html
}

fn write_part(
    html: &mut String,
    title: &str,
    table: &RpcTable,
    part: fn(&RpcRow) -> &Window,
) -> std::fmt::Result {
    let seconds = table.methods.iter().map(|row| part(row).seconds);
    let seconds = seconds.fold(0.0, f64::max);
    write!(
        html,
        "<h2>{title}</h2>\n<p>{} in fact.</p>\n<table><thead><tr><th scope=\"col\">method</th><th scope=\"col\" class=\"n\">calls</th>\
         <th scope=\"col\" class=\"n\">a second</th><th scope=\"col\" class=\"n\">errors</th><th scope=\"col\" class=\"n\">cancelled</th>\
         <th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p95</th><th scope=\"col\" class=\"n\">p99</th><th scope=\"col\" class=\"n\">in flight</th>\
         <th scope=\"col\" class=\"n\">stuck</th><th scope=\"col\" class=\"n\">oldest</th></tr></thead><tbody>\n",
        time(seconds * 1e3)
    )?;
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
            time_if(window.p50_ms),
            time_if(window.p95_ms),
            time_if(window.p99_ms),
            count(row.in_flight),
            count(row.stuck),
            time_if(row.oldest_ms),
        )?;
    }
    html.push_str("</tbody></table>\n");
    Ok(())
}
