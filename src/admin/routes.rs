//! How calls find their backend, and how many went where and why: `/debug/routes`.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Sources;
use super::calls::Format;
use super::page::{Escaped, page_at};
use crate::proxy::instrument::signals::metrics::ROUTE_DECISIONS;
use crate::telemetry::Registry;

/// `/debug/routes?format=json`
#[derive(Debug, Serialize)]
struct Routes {
    /// The backend of everything that nothing else decides.
    default: String,
    /// The backend of images.
    images: String,
    /// The first that matches wins.
    rules: Vec<Rule>,
    /// Calls since the start of the process.
    decisions: Vec<Decision>,
}

#[derive(Debug, Serialize)]
struct Rule {
    runtime_handler: String,
    backend: String,
}

/// Calls that went to a backend for a reason.
#[derive(Debug, PartialEq, Serialize)]
struct Decision {
    backend: String,
    reason: String,
    calls: u64,
}

/// `/debug/routes`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let routing = &sources.routing;
    let rules = routing.rules.iter().map(|rule| Rule {
        runtime_handler: rule.runtime_handler.clone(),
        backend: rule.backend.clone(),
    });
    let routes = Routes {
        default: routing.default.clone(),
        images: routing.images.clone(),
        rules: rules.collect(),
        decisions: decisions(&sources.registry),
    };
    match format.is_json() {
        true => Json(routes).into_response(),
        false => page_at("/debug/routes", "Routes", &html(&routes)).into_response(),
    }
}

/// What `criscope_route_decisions_total` has counted.
fn decisions(registry: &Registry) -> Vec<Decision> {
    let name = ROUTE_DECISIONS.full_name();
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let samples = family.map_or(&[][..], |family| family.get_metric());
    let decision = |sample: &prometheus::proto::Metric| {
        let label = |name: &str| {
            let pair = sample.get_label().iter().find(|pair| pair.name() == name);
            pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
        };
        Decision {
            backend: label("backend"),
            reason: label("reason"),
            // A count, which the library keeps as a float.
            calls: sample.get_counter().get_value() as u64,
        }
    };
    samples.iter().map(decision).collect()
}

fn html(routes: &Routes) -> String {
    let mut html = format!(
        "<p>Calls go to <code>{}</code>, those about images to <code>{}</code>, unless a rule or the owner of a sandbox or \
         container says otherwise.</p>\n",
        Escaped(&routes.default),
        Escaped(&routes.images)
    );
    if !routes.rules.is_empty() {
        let rows = routes.rules.iter();
        let rows = rows.map(|r| vec![r.runtime_handler.clone(), r.backend.clone()]);
        table(&mut html, &["runtime handler", "backend"], rows);
    }
    html.push_str("<h2>Calls since the start</h2>\n");
    let rows = routes.decisions.iter();
    let rows = rows.map(|d| vec![d.backend.clone(), d.reason.clone(), d.calls.to_string()]);
    table(&mut html, &["backend", "reason", "calls"], rows);
    html
}

fn table(html: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    html.push_str("<table><thead><tr>");
    // Writing to a String does not fail.
    for head in heads {
        let _ = write!(html, "<th scope=\"col\">{head}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", Escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_read_from_the_counters() {
        let registry = Registry::new(prometheus::Registry::new(), ["main".to_owned()]);
        assert_eq!(decisions(&registry), []);
        let counters = registry.counters::<2>(&ROUTE_DECISIONS).expect("once");
        counters.at([0, 0]).expect("in range").inc_by(7);
        let decision = Decision {
            backend: "main".to_owned(),
            reason: "default".to_owned(),
            calls: 7,
        };
        assert_eq!(decisions(&registry), [decision]);
    }
}
