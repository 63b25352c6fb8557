//! The routing rules, and the calls that each backend got by reason: `/debug/routes`, and a part of the page of backends.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Serialize;

use super::PageSources;
use super::page::FormatQuery;
use super::runtimes;
use super::table::{table, text};
use crate::proxy::instrument::signals::metrics::ROUTE_DECISIONS;
use crate::telemetry::Registry;

/// `/debug/routes?format=json`
#[derive(Debug, Serialize)]
struct RoutesReport {
    /// The backend of calls that no rule or owner decides.
    default: String,
    /// The backend of image calls.
    images: String,
    /// The first match wins.
    rules: Vec<RoutingRuleReport>,
    /// Calls since the start of the process.
    decisions: Vec<RoutingDecision>,
}

#[derive(Debug, Serialize)]
struct RoutingRuleReport {
    runtime_handler: String,
    backend: String,
}

/// The number of calls to a backend for one reason.
#[derive(Debug, PartialEq, Serialize)]
struct RoutingDecision {
    backend: String,
    reason: String,
    calls: u64,
}

/// `/debug/routes`; the page is the same as `/debug/backends`.
pub async fn page(
    State(sources): State<PageSources>,
    Query(format): Query<FormatQuery>,
) -> Response {
    if format.is_json() {
        Json(routes(&sources)).into_response()
    } else {
        runtimes::html_page(&sources).into_response()
    }
}

fn routes(sources: &PageSources) -> RoutesReport {
    let routing = &sources.routing;
    let rules = routing.rules.iter().map(|rule| RoutingRuleReport {
        runtime_handler: rule.runtime_handler.clone(),
        backend: rule.backend.clone(),
    });
    RoutesReport {
        default: routing.default.clone(),
        images: routing.images.clone(),
        rules: rules.collect(),
        decisions: decisions(&sources.registry),
    }
}

/// The part of the page of backends.
pub(super) fn part(sources: &PageSources) -> Markup {
    html(&routes(sources))
}

/// The routing decisions that `criscope_route_decisions_total` has counted.
fn decisions(registry: &Registry) -> Vec<RoutingDecision> {
    let name = ROUTE_DECISIONS.full_name();
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let samples = family.map_or(&[][..], |family| family.get_metric());
    samples
        .iter()
        .map(|sample| RoutingDecision {
            backend: label(sample, "backend"),
            reason: label(sample, "reason"),
            // A whole number, which the library keeps as a float.
            calls: sample.get_counter().get_value() as u64,
        })
        .collect()
}

fn label(sample: &prometheus::proto::Metric, name: &str) -> String {
    let pair = sample.get_label().iter().find(|pair| pair.name() == name);
    pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
}

fn html(routes: &RoutesReport) -> Markup {
    html! {
        h2 #routing { "Routing of calls" }
        p {
            "Calls go to " code { (routes.default) } ", image calls to " code { (routes.images) }
            ", unless a rule or the owner of a sandbox or container decides otherwise."
        }
        @if !routes.rules.is_empty() {
            (table(&html! { (text("runtime handler")) (text("backend")) }, &html! {
                @for rule in &routes.rules { tr { td { (rule.runtime_handler) } td { (rule.backend) } } }
            }))
        }
        h2 { "Calls since criscope started, by backend" }
        (table(&html! { (text("backend")) (text("reason")) (text("calls")) }, &html! {
            @for it in &routes.decisions { tr { td { (it.backend) } td { (it.reason) } td { (it.calls) } } }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::RouteReason;

    #[test]
    fn decisions_are_read_from_the_counters() {
        let registry = Registry::new(prometheus::Registry::new(), ["main".to_owned()]);
        assert_eq!(decisions(&registry), []);
        let counters = registry.counters(&ROUTE_DECISIONS).expect("once");
        let backend = registry.backends().value("main");
        counters.inc_by((backend, RouteReason::Default), 7);
        let decision = RoutingDecision {
            backend: "main".to_owned(),
            reason: "default".to_owned(),
            calls: 7,
        };
        assert_eq!(decisions(&registry), [decision]);
    }
}
