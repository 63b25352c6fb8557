//! Faults that are injected on purpose: `/debug/faults`. They are added and cleared over the socket only.

use axum::Json;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use serde::Deserialize;

use super::PageSources;
use super::accept::prefers_html;
use super::page::{HtmlPage, page_at};
use super::serve::UnixSocketPeer;
use super::verdict::Verdict;
use crate::proxy::faults::{FaultRule, FaultView};
use crate::telemetry::logging::AUDIT_TARGET;

const FAULTS_DISABLED: &str =
    "faults are not enabled: set faults.enabled = true and restart criscope\n";

/// GET: the faults in effect; a page for a browser.
pub(super) async fn list(State(sources): State<PageSources>, headers: HeaderMap) -> Response {
    if prefers_html(&headers) {
        return page(&sentences(&sources), sources.faults.is_some()).into_response();
    }
    let faults = sources.faults.map(|faults| faults.list());
    Json::<Vec<FaultView>>(faults.unwrap_or_default()).into_response()
}

pub(super) fn page(faults: &[String], enabled: bool) -> HtmlPage {
    let verdict = match faults {
        [] => Verdict::good("No fault is injected."),
        [only] => Verdict::warning(format!("A fault is injected on purpose: {only}.")),
        all => Verdict::warning(format!("{} faults are injected on purpose.", all.len())),
    };
    let body = html! {
        @if faults.len() > 1 { ul { @for fault in faults { li { (fault) } } } }
        @if !enabled {
            p.none {
                "Faults that delay, fail or hold calls of a method stand here while they are injected. To allow them, set "
                code { "faults.enabled = true" } " and restart criscope."
            }
        } @else if faults.is_empty() {
            p.none { code { "criscope fault add" } " injects one: it delays, fails or holds calls of a method." }
        } @else {
            p { code { "criscope fault clear" } " ends them." }
        }
    };
    page_at("/debug/faults", "Faults", &verdict, &body)
}

/// The faults in effect, as `RunPodSandbox of shop/web hangs, until 2025-06-15T15:06:40Z`.
pub(super) fn sentences(sources: &PageSources) -> Vec<String> {
    let faults = sources.faults.iter().flat_map(|faults| faults.list());
    faults
        .map(|fault| {
            let until = crate::units::rfc3339(fault.until_unix_us);
            format!("{}, until {until}", fault.rule)
        })
        .collect()
}

/// POST: adds the fault in the body.
pub(super) async fn add(
    State(sources): State<PageSources>,
    Extension(caller): Extension<UnixSocketPeer>,
    body: String,
) -> Response {
    let Some(faults) = &sources.faults else {
        return (StatusCode::CONFLICT, FAULTS_DISABLED).into_response();
    };
    let rule: FaultRule = match serde_json::from_str(&body) {
        Ok(rule) => rule,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match faults.add(rule) {
        Ok(fault) => {
            // Written at any level.
            tracing::info!(
                target: AUDIT_TARGET,
                event = "fault.added",
                fault = fault.number,
                rpc.method = fault.rule.method.full_name(),
                lasts_ms = fault.rule.for_ms,
                uid = caller.uid,
                pid = caller.pid,
                "faults are injected: {}",
                fault.rule
            );
            (StatusCode::CREATED, Json(fault)).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

/// `?number=`: that one; otherwise all.
#[derive(Debug, Deserialize)]
pub(super) struct FaultNumberQuery {
    number: Option<u64>,
}

/// DELETE: ends faults; the response lists them.
pub(super) async fn clear(
    State(sources): State<PageSources>,
    Query(which): Query<FaultNumberQuery>,
) -> Response {
    let Some(faults) = &sources.faults else {
        return (StatusCode::CONFLICT, FAULTS_DISABLED).into_response();
    };
    Json(faults.clear(which.number)).into_response()
}
