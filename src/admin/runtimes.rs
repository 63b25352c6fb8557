//! The backends as their probes know them: `/debug/backends`.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Sources;
use super::calls::Format;
use super::figures::count;
use super::page::{Escaped, page_at};
use crate::proxy::backend::Backend;
use crate::units;

/// A backend.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Standing {
    pub(super) name: String,
    /// Path of its socket.
    pub(super) endpoint: String,
    pub(super) up: bool,
    /// For how long it has been so; absent before it was first asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since_ms: Option<f64>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// Its own name and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<(String, String)>,
    /// The services as it spells them: `runtime.v1` or `runtime.v1alpha2`.
    pub(super) api: &'static str,
    pub(super) conditions: Vec<Condition>,
    /// Age of its last good Status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_status_ms: Option<f64>,
    /// Connections made after the first.
    pub(super) reconnects: u64,
    /// Calls in flight that went to it.
    pub(super) in_flight: usize,
}

/// A condition of its Status.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Condition {
    pub(super) kind: String,
    pub(super) status: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// `/debug/backends`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let states = standings(&sources);
    match format.is_json() {
        true => Json(states).into_response(),
        false => page_at("/debug/backends", "Backends", &html(&states)).into_response(),
    }
}

/// All backends, in the order of the configuration.
pub(super) fn standings(sources: &Sources) -> Vec<Standing> {
    let calls = sources.in_flight.calls();
    let went_to = |name: &str| {
        let of_call =
            |call: &crate::call::Call| call.route.get().is_some_and(|r| *r.backend == *name);
        calls.iter().filter(|call| of_call(call)).count()
    };
    let backends = sources.backends.iter();
    backends.map(|b| state(b, went_to(b.name()))).collect()
}

fn state(backend: &Backend, in_flight: usize) -> Standing {
    let health = backend.health();
    let state = health.state();
    let age = |at: std::time::Instant| at.elapsed().as_secs_f64() * 1e3;
    let conditions = state.conditions.into_iter().map(|c| Condition {
        kind: c.kind,
        status: c.status,
        reason: c.reason,
    });
    Standing {
        name: backend.name().to_string(),
        endpoint: backend.endpoint(),
        up: state.up,
        since_ms: state.since.map(age),
        reason: state.reason,
        runtime: state.runtime,
        api: health.api().package(),
        conditions: conditions.collect(),
        last_status_ms: state.last_status.map(age),
        reconnects: health.reconnects(),
        in_flight,
    }
}

fn html(states: &[Standing]) -> String {
    let mut html = String::from(
        "<table><thead><tr><th scope=\"col\">backend</th><th scope=\"col\">socket</th><th scope=\"col\">state</th><th scope=\"col\">runtime</th><th scope=\"col\">conditions</th>\
         <th scope=\"col\" class=\"n\">last Status</th><th scope=\"col\" class=\"n\">came back</th><th scope=\"col\" class=\"n\">in flight</th></tr></thead><tbody>\n",
    );
    for state in states {
        // Writing to a String does not fail.
        let _ = write_row(&mut html, state);
    }
    html.push_str("</tbody></table>\n<p><a href=\"/debug/routes\">How calls find theirs</a></p>");
    html
}

fn write_row(html: &mut String, state: &Standing) -> std::fmt::Result {
    let since = state
        .since_ms
        .map(|ms| format!(" for {}", units::duration(ms)));
    let runtime = state.runtime.as_ref();
    let runtime = runtime.map(|(name, version)| format!("{name} {version}, {}", state.api));
    write!(
        html,
        "<tr><td>{}</td><td><code>{}</code></td><td{}>{}{} {}</td><td>{}</td><td>",
        Escaped(&state.name),
        Escaped(&state.endpoint),
        if state.up { "" } else { " class=\"late\"" },
        if state.up { "up" } else { "down" },
        since.unwrap_or_default(),
        Escaped(&state.reason),
        Escaped(runtime.unwrap_or_default()),
    )?;
    for condition in &state.conditions {
        let word = if condition.status { "yes" } else { "no" };
        write!(
            html,
            "{}: {word} {}<br>",
            Escaped(&condition.kind),
            Escaped(&condition.reason)
        )?;
    }
    let last = state
        .last_status_ms
        .map(|ms| units::since((ms * 1e3) as u64, 0));
    writeln!(
        html,
        "</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
        last.unwrap_or_default(),
        count(state.reconnects),
        state.in_flight,
    )
}
