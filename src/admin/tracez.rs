//! Samples of calls by latency, and of failed calls: `/debug/tracez`, and a part of the page of the recorder.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::table::{self, count, number, text};
use super::{PageSources, flight};
use crate::cri::Method;
use crate::lifecycle::tables::{BUCKETS_US, CallSamples, samples};
use crate::lifecycle::view;
use crate::units;
use crate::units::times::UnixMicros;

/// The query.
#[derive(Debug, Default, Deserialize)]
pub struct TracezQuery {
    format: Option<String>,
    method: Option<String>,
}

/// The method with this name in a query string.
pub(super) fn method_of(name: &str) -> Option<Method> {
    Method::ALL.into_iter().find(|method| method.name() == name)
}

/// The response to an unknown method.
pub(super) const NO_SUCH_METHOD: &str = "no such method\n";

/// `/debug/tracez`; the page is the same as `/debug/flight`.
pub async fn page(
    State(sources): State<PageSources>,
    Query(wanted): Query<TracezQuery>,
) -> Response {
    let only = wanted.method.as_deref().map(method_of);
    if only == Some(None) {
        return (StatusCode::BAD_REQUEST, NO_SUCH_METHOD).into_response();
    }
    match wanted.format.as_deref() {
        Some("json") => Json(recorder_samples(&sources, only.flatten())).into_response(),
        _ => {
            flight::page(
                State(sources),
                Query(flight::FlightRecorderQuery::for_method(wanted.method)),
            )
            .await
        }
    }
}

fn recorder_samples(sources: &PageSources, only: Option<Method>) -> CallSamples {
    samples(&sources.recorder, &sources.in_flight.calls(), only)
}

/// The part of the page of the recorder.
pub(super) fn part(sources: &PageSources, only: Option<Method>) -> Markup {
    html(&recorder_samples(sources, only))
}

fn html(samples: &CallSamples) -> Markup {
    if samples.methods.is_empty() {
        return html! {
            p.none { "No such call is recorded. Samples of calls stand here, by how long they took, as soon as some have ended." }
        };
    }
    let columns = html! {
        (text("method"))
        (number("in flight"))
        @for from in BUCKETS_US { (number(&format!("from {}", units::duration(from as f64 / 1e3)))) }
        (number("failed"))
    };
    let counts = html! {
        @for of in &samples.methods {
            tr {
                td { a href={ "/debug/flight?method=" (of.method) } { (of.method) } }
                td.n { (count(of.in_flight)) }
                @for bucket in &of.buckets { td.n { (count(bucket.count)) } }
                td.n.late { (count(of.errors.count)) }
            }
        }
    };
    html! {
        h2 #samples { "Samples, by method and latency" }
        (table::table(&columns, &counts))
        @for of in &samples.methods {
            @let buckets = [&of.errors].into_iter().chain(of.buckets.iter().rev());
            @if buckets.clone().any(|bucket| bucket.count > 0) {
                h3 { (of.method) }
                (calls(buckets.flat_map(|bucket| &bucket.samples), samples.now_unix_us))
            }
        }
    }
}

/// A table of calls.
pub(super) fn calls<'a>(
    rows: impl IntoIterator<Item = &'a view::CallView>,
    now: UnixMicros,
) -> Markup {
    let columns = html! {
        (number("call")) (text("method")) (text("pod")) (text("container")) (number("took")) (number("in backend"))
        (text("outcome")) (text("began")) (text("error"))
    };
    table::flowing(&columns, &html! { @for row in rows { (call(row, now)) } })
}

fn call(row: &view::CallView, now: UnixMicros) -> Markup {
    let whom = row.pod_path().or_else(|| row.image.clone());
    // A code as gRPC spells it, an outcome in words.
    let outcome = if row.code.is_empty() {
        row.outcome.replace('_', " ")
    } else {
        row.code.clone()
    };
    html! {
        tr {
            td.n { (row.seq) }
            td { (row.method) }
            td { (whom.unwrap_or_default()) }
            td { (row.container.as_deref().unwrap_or_default()) }
            td.n { (units::duration(row.duration_ms)) }
            td.n.opt { (row.backend_ms.map(units::duration).unwrap_or_default()) }
            td class=[(row.outcome != "ok").then_some("late")] {
                (outcome) @if let Some(n) = row.stuck { " (stuck: " (n) "\u{a0}%)" }
            }
            td.nw { (units::since(now.since(row.began_unix_us))) }
            td.msg { (row.error.as_deref().unwrap_or_default()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::STYLE;
    use super::*;

    /// On a narrow screen the error must not be beyond the edge.
    #[test]
    fn rows_of_calls_flow_where_it_is_narrow() {
        let row = view::CallView {
            error: Some("no <network>".to_owned()),
            outcome: "in_flight".to_owned(),
            ..view::CallView::default()
        };
        let html = calls([&row], UnixMicros::EPOCH).into_string();
        assert!(html.contains("<table class=\"flow\">"), "{html}");
        assert!(
            html.contains("<td class=\"msg\">no &lt;network&gt;</td>"),
            "{html}"
        );
        assert!(html.contains(">in flight</td>"), "{html}");
        let narrow = STYLE
            .split("max-width:700px")
            .nth(1)
            .expect("a narrow part");
        assert!(narrow.contains(".flow .msg{flex-basis:100%}"));
    }
}
