//! Samples of calls by how long they took, and of those that failed: `/debug/tracez`.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Sources;
use super::figures::count;
use super::page::{Escaped, page_at};
use crate::cri::Method;
use crate::lifecycle::tables::{BUCKETS_US, Bucket, MethodSamples, Samples, samples};
use crate::lifecycle::view;
use crate::units;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
pub struct Wanted {
    format: Option<String>,
    method: Option<String>,
}

/// The method of this name, as query strings have it.
pub(super) fn method_of(name: &str) -> Option<Method> {
    Method::ALL.into_iter().find(|method| method.name() == name)
}

/// The answer to a method that there is not.
pub(super) const NO_SUCH_METHOD: &str = "there is no such method\n";

/// `/debug/tracez`
pub async fn page(State(sources): State<Sources>, Query(wanted): Query<Wanted>) -> Response {
    let only = wanted.method.as_deref().map(method_of);
    if only == Some(None) {
        return (StatusCode::BAD_REQUEST, NO_SUCH_METHOD).into_response();
    }
    let samples = samples(
        &sources.recorder,
        &sources.in_flight.calls(),
        only.flatten(),
    );
    match wanted.format.as_deref() {
        Some("json") => Json(samples).into_response(),
        _ => page_at("/debug/tracez", "Samples of calls", &html(&samples)).into_response(),
    }
}

fn html(samples: &Samples) -> String {
    if samples.methods.is_empty() {
        return "<p>No such call is remembered.</p>".to_owned();
    }
    let mut html = String::from(
        "<p>Of the calls that the <a href=\"/debug/flight\">flight recorder</a> remembers.</p>\n\
         <table><thead><tr><th scope=\"col\">method</th><th scope=\"col\" class=\"n\">in flight</th>",
    );
    for from in BUCKETS_US {
        let _ = write!(
            html,
            "<th scope=\"col\" class=\"n\">from {}</th>",
            units::duration(from as f64 / 1e3)
        );
    }
    html.push_str("<th scope=\"col\" class=\"n\">failed</th></tr></thead><tbody>\n");
    // Writing to a String does not fail.
    for of_method in &samples.methods {
        let _ = write_counts(&mut html, of_method);
    }
    html.push_str("</tbody></table>\n");
    for of_method in &samples.methods {
        let _ = write_samples(&mut html, of_method, samples.now_unix_us);
    }
    html
}

fn write_counts(html: &mut String, of: &MethodSamples) -> std::fmt::Result {
    write!(
        html,
        "<tr><td><a href=\"?method={0}\">{0}</a></td><td class=\"n\">{1}</td>",
        of.method,
        count(of.in_flight)
    )?;
    for bucket in &of.buckets {
        write!(html, "<td class=\"n\">{}</td>", count(bucket.count))?;
    }
    writeln!(
        html,
        "<td class=\"n late\">{}</td></tr>",
        count(of.errors.count)
    )
}

fn write_samples(html: &mut String, of: &MethodSamples, now: u64) -> std::fmt::Result {
    let there = |bucket: &&Bucket| bucket.count > 0;
    if !of.buckets.iter().chain([&of.errors]).any(|b| there(&b)) {
        return Ok(());
    }
    write!(html, "<h2>{}</h2>\n{CALLS_HEAD}", of.method)?;
    for bucket in [&of.errors].into_iter().chain(of.buckets.iter().rev()) {
        for row in &bucket.samples {
            write_call(html, row, now)?;
        }
    }
    html.push_str("</tbody></table>\n");
    Ok(())
}

/// The head of a table of calls.
pub(super) const CALLS_HEAD: &str = "<table class=\"flow\"><thead><tr><th scope=\"col\" class=\"n\">call</th><th scope=\"col\">method</th><th scope=\"col\">pod</th>\
    <th scope=\"col\">container</th><th scope=\"col\" class=\"n\">took</th><th scope=\"col\" class=\"n\">in backend</th><th scope=\"col\">outcome</th><th scope=\"col\">began</th>\
    <th scope=\"col\">error</th></tr></thead><tbody>\n";

/// A row of such a table.
pub(super) fn write_call(html: &mut String, row: &view::Call, now: u64) -> std::fmt::Result {
    let whom = row.pod_path().or_else(|| row.image.clone());
    let stuck = row.stuck.map(|n| format!(" (stuck: {n}\u{a0}%)"));
    // A code is written as gRPC has it, an outcome for people.
    let outcome = match row.code.is_empty() {
        true => row.outcome.replace('_', " "),
        false => row.code.clone(),
    };
    writeln!(
        html,
        "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n opt\">{}</td>\
         <td{}>{}{}</td><td class=\"nw\">{}</td><td class=\"msg\">{}</td></tr>",
        row.seq,
        row.method,
        Escaped(whom.unwrap_or_default()),
        Escaped(row.container.as_deref().unwrap_or_default()),
        units::duration(row.duration_ms),
        row.backend_ms.map(units::duration).unwrap_or_default(),
        if row.outcome == "ok" {
            ""
        } else {
            " class=\"late\""
        },
        outcome,
        stuck.unwrap_or_default(),
        units::since(now, row.began_unix_us),
        Escaped(row.error.as_deref().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::page::STYLE;
    use super::*;

    /// On a narrow screen what went wrong must not stand beyond the edge.
    #[test]
    fn rows_of_calls_flow_where_it_is_narrow() {
        let row = view::Call {
            error: Some("no <network>".to_owned()),
            outcome: "in_flight".to_owned(),
            ..view::Call::default()
        };
        let mut html = CALLS_HEAD.to_owned();
        write_call(&mut html, &row, 0).expect("written");
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
