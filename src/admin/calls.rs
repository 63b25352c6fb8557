//! Every call in flight: what is it, whose is it, how far has it come, how long may it still take?

use std::fmt::Write as _;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Sources;
use super::links;
use super::page::{Escaped, page_at};
use super::waterfall::gauge;
use crate::call::Call;
use crate::lifecycle::view::Running;
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

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

/// What is known of a call now.
pub fn running(call: &Call) -> Running {
    let age = call.age();
    let subject = call.subject.get();
    let pod = subject.and_then(|s| s.pod.as_deref());
    let container = subject.and_then(|s| s.container.as_deref());
    Running {
        seq: call.seq,
        method: call.method.name().to_owned(),
        phase: call.stage().name().to_owned(),
        age_ms: age.as_millis().try_into().unwrap_or(u64::MAX),
        deadline_left_ms: call.deadline.map(|d| millis(d) - millis(age)),
        stuck_percent: call.share_used(),
        backend: call.route.get().map(|r| r.backend.to_string()),
        client: call.peer.client.name().to_owned(),
        client_pid: call.peer.pid,
        client_comm: call.peer.comm.as_deref().map(str::to_owned),
        namespace: pod.map(|p| p.namespace.to_string()),
        pod: pod.map(|p| p.name.to_string()),
        pod_uid: pod.map(|p| p.uid.to_string()),
        container: container.map(|c| c.name.to_string()),
        sandbox_id: call.sandbox_id().map(|id| id.to_string()),
        container_id: call.container_id().map(|id| id.to_string()),
        image: subject.and_then(|s| s.image.as_deref()).map(str::to_owned),
        request_bytes: call.request_bytes(),
        response_bytes: call.response_bytes(),
    }
}

/// All calls in flight, the oldest first.
pub(super) fn rows(sources: &Sources) -> Vec<Running> {
    let calls = sources.in_flight.calls();
    calls.iter().map(|call| running(call)).collect()
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
pub(super) fn table(rows: &[Running]) -> String {
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

fn write_row(html: &mut String, row: &Running) -> std::fmt::Result {
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
    let stuck = row.stuck_percent > 0;
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
        age(row),
        deadline(row),
        Escaped(container.unwrap_or_default()),
        Escaped(&row.phase),
        Escaped(row.backend.as_deref().unwrap_or_default()),
        Escaped(caller),
    )
}

#[allow(clippy::cast_precision_loss)]
fn age(row: &Running) -> String {
    units::duration(row.age_ms as f64)
}

/// The share of the deadline that is used, as a number and as a bar.
#[allow(clippy::cast_precision_loss)]
fn deadline(row: &Running) -> String {
    let (Some(share), Some(whole)) = (row.share(), row.deadline_ms()) else {
        return "<span class=\"muted\">none</span>".to_owned();
    };
    let words = format!("{share} % of {}", units::duration(whole as f64));
    let shown = match row.deadline_left_ms {
        Some(left) if left < 0 => format!("<span class=\"late\">{words}: passed</span>"),
        _ => words.clone(),
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

    fn row() -> Running {
        Running {
            method: "RunPodSandbox".to_owned(),
            phase: "waiting".to_owned(),
            age_ms: 150_000,
            deadline_left_ms: Some(90_000),
            namespace: Some("shop".to_owned()),
            pod: Some("<web>".to_owned()),
            ..Running::default()
        }
    }

    #[test]
    fn a_stuck_call_says_so_in_words_and_with_its_share() {
        let mut row = row();
        assert!(!table(std::slice::from_ref(&row)).contains("stuck"));
        row.stuck_percent = 50;
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
        late.deadline_left_ms = Some(-1000);
        let html = table(&[late]);
        assert!(html.contains("100 % of 2m 29s: passed"), "{html}");
        let mut endless = row();
        endless.deadline_left_ms = None;
        assert!(table(&[endless]).contains("none</span>"));
    }
}
