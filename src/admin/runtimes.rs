//! The backends as their probes see them: `/debug/backends`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Serialize;

use super::page::{FormatQuery, HtmlPage, page_at};
use super::table::{count, flowing, number, text};
use super::verdict::Verdict;
use super::{PageSources, routes};
use crate::cri::subject::REQUIRED_CONDITIONS;
use crate::lifecycle::view::VerdictLevel;
use crate::proxy::backend::Backend;
use crate::units;

/// A backend.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BackendView {
    pub(super) name: String,
    /// Path of its socket.
    pub(super) endpoint: String,
    pub(super) up: bool,
    /// Milliseconds in this state; absent before the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since_ms: Option<f64>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// The runtime's own name and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<(String, String)>,
    /// The version of its services: `runtime.v1` or `runtime.v1alpha2`.
    pub(super) api: &'static str,
    pub(super) conditions: Vec<ConditionView>,
    /// The cgroup driver that criscope answered RuntimeConfig with, and its source; absent if the runtime answers by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answered_cgroup_driver: Option<String>,
    /// Age of the last successful Status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_status_ms: Option<f64>,
    /// Connections made after the first.
    pub(super) reconnects: u64,
    /// Calls in flight to it.
    pub(super) in_flight: usize,
    /// Calls that outlived their caller's deadline and wait for its retry.
    pub(super) kept_calls: usize,
}

/// A condition of its Status.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ConditionView {
    pub(super) kind: String,
    pub(super) status: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// The runtime's message about the condition, redacted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

/// `/debug/backends`
pub async fn page(
    State(sources): State<PageSources>,
    Query(format): Query<FormatQuery>,
) -> Response {
    if format.is_json() {
        Json(standings(&sources)).into_response()
    } else {
        html_page(&sources).into_response()
    }
}

/// The page of the backends and of the routing of calls to them.
pub(super) fn html_page(sources: &PageSources) -> HtmlPage {
    let states = standings(sources);
    let body = html! { (html(&states)) (routes::part(sources)) };
    page_at("/debug/backends", "Backends", &verdict(&states), &body)
}

/// The verdict over the backends. It names each one that does not answer or is not ready.
pub(super) fn verdict(states: &[BackendView]) -> Verdict {
    let troubles: Vec<_> = states.iter().filter_map(trouble).collect();
    if !troubles.is_empty() {
        return Verdict::bad(format!("{}.", troubles.join("; ")));
    }
    let mut unknown = states.iter().filter(|state| !state.up);
    match (states, unknown.next()) {
        (_, Some(unknown)) => Verdict::new(
            VerdictLevel::Busy,
            format!("The runtime {} has not been probed yet.", unknown.name),
        ),
        ([], None) => Verdict::empty("No runtime is configured."),
        ([only], None) => Verdict::good(format!("The runtime {} answers and is ready.", only.name)),
        (all, None) => Verdict::good(format!("All {} runtimes answer and are ready.", all.len())),
    }
}

/// Trouble of a backend that was probed.
fn trouble(state: &BackendView) -> Option<String> {
    let name = &state.name;
    if !state.up {
        let reason = (!state.reason.is_empty()).then_some(&state.reason)?;
        return Some(format!("The runtime {name} does not answer: {reason}"));
    }
    let mut conditions = state.conditions.iter();
    let condition = conditions
        .find(|condition| !condition.status && REQUIRED_CONDITIONS.contains(&&*condition.kind))?;
    let words = [&*condition.reason, &*condition.message].into_iter();
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let kind = &condition.kind;
    Some(format!("{kind} of {name} is false: {}", words.join(", ")))
}

/// All backends, in the order of the configuration.
pub(super) fn standings(sources: &PageSources) -> Vec<BackendView> {
    let calls = sources.in_flight.calls();
    let backends = sources.backends.iter();
    backends
        .map(|backend| {
            let routes = calls.iter().filter_map(|call| call.route.get());
            let in_flight = routes.filter(|route| *route.backend == **backend.name());
            state(backend, in_flight.count())
        })
        .collect()
}

fn state(backend: &Backend, in_flight: usize) -> BackendView {
    let health = backend.health();
    let state = health.state();
    let conditions = state.conditions.into_iter().map(|c| ConditionView {
        kind: c.kind,
        status: c.status,
        reason: c.reason,
        message: c.message,
    });
    BackendView {
        name: backend.name().to_string(),
        endpoint: backend.endpoint(),
        up: state.up,
        since_ms: state.since.map(age_ms),
        reason: state.reason,
        runtime: state.runtime,
        api: health.api().package(),
        conditions: conditions.collect(),
        answered_cgroup_driver: state.found_driver.map(|found| found.to_string()),
        last_status_ms: state.last_status.map(age_ms),
        reconnects: health.reconnects(),
        in_flight,
        kept_calls: backend.kept_calls().map_or(0, |kept| kept.len()),
    }
}

fn age_ms(at: std::time::Instant) -> f64 {
    at.elapsed().as_secs_f64() * 1e3
}

pub(super) fn html(states: &[BackendView]) -> Markup {
    let columns = html! {
        (text("backend")) (text("socket")) (text("state")) (text("runtime")) (text("conditions"))
        (number("last Status")) (number("reconnects")) (number("in flight"))
    };
    flowing(&columns, &html! { @for state in states { (row(state)) } })
}

fn row(state: &BackendView) -> Markup {
    html! {
        tr {
            th scope="row" { (state.name) }
            td { code { (state.endpoint) } }
            td class=[(!state.up).then_some("late")] {
                (if state.up { "up" } else { "down" })
                @if let Some(ms) = state.since_ms { " for " (units::duration(ms)) }
                " " (state.reason)
            }
            td { @if let Some((name, version)) = &state.runtime { (name) " " (version) ", " (state.api) } }
            td.msg {
                @for condition in &state.conditions {
                    (condition.kind) ": " (if condition.status { "yes" } else { "no" }) " " (condition.reason) " " (condition.message) br;
                }
            }
            td.n data-label="last Status" { @if let Some(ms) = state.last_status_ms { (units::since(Duration::from_micros((ms * 1e3) as u64))) } }
            td.n.opt { (count(state.reconnects)) }
            td.n.opt { (state.in_flight) }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::Render as _;

    use super::*;

    #[test]
    fn a_backend_that_is_down_or_not_ready_is_told_first() {
        let up = BackendView {
            name: "main".to_owned(),
            up: true,
            ..BackendView::default()
        };
        let down = BackendView {
            name: "kata".to_owned(),
            reason: "connection refused".to_owned(),
            ..BackendView::default()
        };
        let no_network = BackendView {
            conditions: vec![ConditionView {
                kind: "NetworkReady".to_owned(),
                reason: "NoCni".to_owned(),
                ..ConditionView::default()
            }],
            ..up.clone()
        };
        let unknown = BackendView {
            name: "new".to_owned(),
            ..BackendView::default()
        };
        let cases = [
            (vec![up.clone()], "The runtime main answers and is ready."),
            (vec![up.clone(), up.clone()], "All 2 runtimes"),
            (
                vec![up, down],
                "The runtime kata does not answer: connection refused.",
            ),
            (vec![no_network], "NetworkReady of main is false: NoCni."),
            (vec![unknown], "The runtime new has not been probed yet."),
        ];
        for (states, words) in cases {
            let html = verdict(&states).render().into_string();
            assert!(html.contains(words), "{html}");
        }
    }
}
