//! Every call in flight: what is it, whose is it, how far has it come, how long may it still take?

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Sources;
use super::links;
use super::page::{Escaped, page_at};
use super::waterfall::gauge;
use crate::call::CallRecord;
use crate::lifecycle::view::Call;
use crate::units;

/// `?format=json`
#[derive(Debug, Deserialize)]
pub struct Format {
    format: Option<String>,
}

impl Format {
    /// Whether JSON is asked for.
    pub fn is_json(&self) -> bool {
        self.format.as_deref() == Some("json")
    }
}

/// All calls in flight, the oldest first.
pub(super) fn rows(sources: &Sources) -> Vec<Call> {
    let calls = sources.in_flight.calls();
    let records = calls.iter().map(|call| CallRecord::in_flight(call));
    records.map(|record| Call::of(&record)).collect()
}

/// `/debug/calls`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let rows = rows(&sources);
    match format.is_json() {
        true => Json(rows).into_response(),
        false => {
            let body = format!("<section class=\"card\">{}</section>", table(&rows));
            page_at("/debug/calls", "Calls in flight", &body).into_response()
        }
    }
}

/// The calls as a table.
pub(super) fn table(rows: &[Call]) -> String {
    if rows.is_empty() {
        return "<p class=\"none\">No call is in flight.</p>".to_owned();
    }
    let mut html = String::from(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Calls in flight\"><table>\
         <caption class=\"vh\">Calls in flight, the oldest first</caption><thead><tr>\
         <th scope=\"col\">Call</th><th scope=\"col\" class=\"n\">Age</th><th scope=\"col\">Deadline</th>\
         <th scope=\"col\">Pod, container or image</th><th scope=\"col\">Phase</th><th scope=\"col\">Caller</th>\
         </tr></thead><tbody>\n",
    );
    for row in rows {
        // Writing to a String does not fail.
        let _ = write_row(&mut html, row);
    }
    html.push_str("</tbody></table></div>");
    html
}

fn write_row(html: &mut String, row: &Call) -> std::fmt::Result {
    let pod = match (&row.namespace, &row.pod, &row.sandbox_id) {
        (Some(namespace), Some(pod), _) => links::pod(namespace, pod),
        (_, _, Some(id)) => format!("<code>{}</code>", Escaped(short(id))),
        _ => String::new(),
    };
    let container = row.container.as_deref().or(row.image.as_deref());
    let container = container.or_else(|| row.container_id.as_deref().map(short));
    let caller = match (&row.client_comm, row.client_pid) {
        (Some(comm), Some(pid)) => format!("{comm} ({pid})"),
        _ => row.client.clone(),
    };
    let stuck = row.stuck.is_some();
    writeln!(
        html,
        "<tr{}><th scope=\"row\" class=\"call\">{}{}</th><td class=\"n\">{}</td><td class=\"nw\">{}</td>\
         <td class=\"name\">{pod} <span class=\"sub\">{}</span></td><td>{} <span class=\"sub nw\">{}</span></td>\
         <td class=\"nw\">{}</td></tr>",
        if stuck { " class=\"stuck\"" } else { "" },
        Escaped(&row.method),
        if stuck {
            " <span class=\"warn\">stuck</span>"
        } else {
            ""
        },
        units::duration(row.duration_ms),
        deadline(row),
        Escaped(container.unwrap_or_default()),
        Escaped(row.phase.as_deref().unwrap_or_default()),
        Escaped(row.backend.as_deref().unwrap_or_default()),
        Escaped(caller),
    )
}

/// The share of the deadline that is used, as a number and as a bar.
fn deadline(row: &Call) -> String {
    let (Some(share), Some(whole)) = (row.share(), row.deadline_ms) else {
        return "<span class=\"muted\">none</span>".to_owned();
    };
    let words = format!("{share} % of {}", units::duration(whole));
    let shown = match row.duration_ms > whole {
        true => format!("<span class=\"late\">{words}: passed</span>"),
        false => words.clone(),
    };
    format!("{shown}{}", gauge(share, &words))
}

/// The begin of an id, which is enough to know it by.
pub(super) fn short(id: &str) -> &str {
    &id[..id.floor_char_boundary(13)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Call {
        Call {
            method: "RunPodSandbox".to_owned(),
            phase: Some("waiting".to_owned()),
            duration_ms: 150_000.0,
            deadline_ms: Some(240_000.0),
            namespace: Some("shop".to_owned()),
            pod: Some("<web>".to_owned()),
            ..Call::default()
        }
    }

    #[test]
    fn a_stuck_call_says_so_in_words_and_with_its_share() {
        let mut row = row();
        assert!(!table(std::slice::from_ref(&row)).contains("stuck"));
        row.stuck = Some(50);
        let html = table(&[row]);
        assert!(html.contains("<tr class=\"stuck\">") && html.contains(">stuck</span>"));
        assert!(html.contains("62 % of 4m 00s") && html.contains("width=\"62%\""));
        assert!(
            html.contains("<a href=\"/debug/pods/shop/%3Cweb%3E\">"),
            "{html}"
        );
    }

    #[test]
    fn a_deadline_may_have_passed_or_not_exist() {
        let mut late = row();
        late.deadline_ms = Some(149_000.0);
        let html = table(&[late]);
        assert!(html.contains("100 % of 2m 29s: passed"), "{html}");
        let mut endless = row();
        endless.deadline_ms = None;
        assert!(table(&[endless]).contains("none</span>"));
    }
}
