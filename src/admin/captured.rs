//! Captures: the state that a capture adds to the journal, and the pages of a capture on another machine.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use super::hosts::{self, AllowedHosts};
use super::nav::PageNavigation;
use super::page::FormatQuery;
use super::{PageSources, PodPageSources, no_page, page, plain, pods, serve};
use crate::lifecycle::capture::{CaptureBundle, ProcessSnapshot};
use crate::proxy::instrument::InFlightCalls;

/// The pages that a capture holds: its name there, the path and the path to fetch.
pub const PAGES: [(&str, &str, &str); 8] = [
    ("live.json", "/live", "/?format=json"),
    ("calls.json", "/debug/calls", "/debug/calls?format=json"),
    ("methods.json", "/debug/rpcz", "/debug/rpcz?format=json"),
    ("flight.json", "/debug/flight", "/debug/flight?format=json"),
    (
        "pulls.json",
        "/debug/images/pulls",
        "/debug/images/pulls?format=json",
    ),
    (
        "backends.json",
        "/debug/backends",
        "/debug/backends?format=json",
    ),
    ("config.json", "/debug/config", "/debug/config?format=json"),
    ("metrics.txt", "/metrics", "/metrics"),
];

/// `/debug/capture`
pub(super) async fn snapshot(State(sources): State<PageSources>) -> Response {
    // Reading takes milliseconds, which would delay the other tasks of the side thread.
    let snapshot = tokio::task::spawn_blocking(move || {
        let calls = sources.in_flight.calls();
        ProcessSnapshot::new(&sources.stories, &calls, &sources.state_dir)
    });
    match snapshot.await {
        Ok(snapshot) => Json(snapshot).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The stored pages.
type StoredPages = Arc<BTreeMap<String, Vec<u8>>>;

/// The pages of a capture: those of pods are made again, others are shown as they were.
pub fn app(bundle: CaptureBundle) -> Router {
    let sources = PodPageSources {
        stories: Arc::new(bundle.stories()),
        in_flight: Arc::<InFlightCalls>::default(),
        kubelet_dir: None,
        trace_url: None,
    };
    let stored: StoredPages = Arc::new(bundle.pages);
    let live = Arc::clone(&stored);
    let root = get(move |Query(format): Query<FormatQuery>| async move {
        if format.is_json() {
            stored_page(&live, "live.json")
        } else {
            Redirect::to("/debug/pods").into_response()
        }
    });
    let mut app = Router::new()
        .route("/", root)
        .route("/debug/pods", get(pods::list))
        .route("/debug/pods/{namespace}/{name}", get(pods::one));
    for (name, path, _) in PAGES {
        let stored = Arc::clone(&stored);
        app = app.route(path, get(async move || stored_page(&stored, name)));
    }
    app.fallback(no_page)
        .layer(from_fn_with_state(PageNavigation::Full, plain::as_pages))
        .layer(map_response(page::secure))
        .with_state(sources)
}

fn stored_page(stored: &StoredPages, name: &str) -> Response {
    let Some(body) = stored.get(name) else {
        return (StatusCode::NOT_FOUND, "the capture has no such page\n").into_response();
    };
    let kind = if name.ends_with(".json") {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    ([(header::CONTENT_TYPE, kind)], body.clone()).into_response()
}

/// Serves the pages of a capture until `stop`.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve_captured(
    listener: TcpListener,
    app: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let hosts = AllowedHosts::new(&[], &super::live::host());
    let app = app.layer(from_fn_with_state(hosts, hosts::check));
    serve::tcp(listener, app, stop).await
}
