//! Every call in flight: what is it, whose is it, how far has it come, how long may it still take?

use std::fmt::Write as _;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Sources;
use super::page::{Escaped, page as html_page};
use crate::cri::Call;

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

/// One call, as shown. Holds identity only.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Number of the call since the start.
    pub seq: u64,
    /// Short name of the method.
    pub method: &'static str,
    /// How far it has come.
    pub phase: &'static str,
    /// Milliseconds since it entered.
    pub age_ms: u64,
    /// Milliseconds until the caller's deadline; negative once it has passed; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_left_ms: Option<i64>,
    /// Where it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Kind of caller.
    pub client: &'static str,
    /// The caller's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_pid: Option<i32>,
    /// The caller's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_comm: Option<String>,
    /// Kubernetes namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pod name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Pod uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Container name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Sandbox id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Container id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Image reference without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Bytes of the request message.
    pub request_bytes: u64,
    /// Bytes of the answer so far.
    pub response_bytes: u64,
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

impl Row {
    /// What is known of a call now.
    pub fn of(call: &Call) -> Self {
        let age = call.age();
        let subject = call.subject.get();
        let pod = subject.and_then(|s| s.pod.as_deref());
        let container = subject.and_then(|s| s.container.as_deref());
        Self {
            seq: call.seq,
            method: call.method.name(),
            phase: call.phase().name(),
            age_ms: age.as_millis().try_into().unwrap_or(u64::MAX),
            deadline_left_ms: call.deadline.map(|d| millis(d) - millis(age)),
            backend: call.route.get().map(|r| r.backend.to_string()),
            client: call.peer.client.name(),
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
}

/// `/debug/calls`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let rows: Vec<_> = sources
        .in_flight
        .calls()
        .iter()
        .map(|c| Row::of(c))
        .collect();
    match format.is_json() {
        true => Json(rows).into_response(),
        false => html_page("Calls in flight", &table(&rows)).into_response(),
    }
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "<p>No call is in flight.</p>".to_owned();
    }
    let mut html = String::from(
        "<table><thead><tr><th>method</th><th>pod</th><th>container</th><th>phase</th><th class=\"n\">age</th>\
         <th class=\"n\">deadline in</th><th>backend</th><th>caller</th></tr></thead><tbody>\n",
    );
    for row in rows {
        // Writing to a String does not fail.
        let _ = write_row(&mut html, row);
    }
    html.push_str("</tbody></table>");
    html
}

fn write_row(html: &mut String, row: &Row) -> std::fmt::Result {
    let pod = match (&row.namespace, &row.pod, &row.sandbox_id) {
        (Some(namespace), Some(pod), _) => format!("{namespace}/{pod}"),
        (_, _, Some(id)) => short(id).to_owned(),
        _ => row.image.clone().unwrap_or_default(),
    };
    let container = row.container.as_deref();
    let container = container.or_else(|| row.container_id.as_deref().map(short));
    let deadline = match row.deadline_left_ms {
        Some(left) if left < 0 => format!("<span class=\"late\">{}</span>", seconds(left)),
        Some(left) => seconds(left),
        None => "none".to_owned(),
    };
    let caller = match (&row.client_comm, row.client_pid) {
        (Some(comm), Some(pid)) => format!("{comm} ({pid})"),
        _ => row.client.to_owned(),
    };
    writeln!(
        html,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td>{}</td><td>{}</td></tr>",
        row.method,
        Escaped(pod),
        Escaped(container.unwrap_or_default()),
        row.phase,
        seconds(i64::try_from(row.age_ms).unwrap_or(i64::MAX)),
        deadline,
        Escaped(row.backend.as_deref().unwrap_or_default()),
        Escaped(caller),
    )
}

#[allow(clippy::cast_precision_loss)]
fn seconds(ms: i64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

fn short(id: &str) -> &str {
    &id[..id.floor_char_boundary(13)]
}
