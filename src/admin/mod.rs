//! The HTTP endpoint: metrics, health and pages. It is read-only over TCP; over the unix socket root can also change the log
//! level and inject faults. A socket for agents has what an agent shows, read-only.
//!
//! | path | what |
//! |---|---|
//! | `/` | the live page; `?format=json` |
//! | `/metrics` | Prometheus text format 0.0.4, or OpenMetrics 1.0.0 by `Accept` |
//! | `/livez` | 200 while the request path makes progress |
//! | `/readyz` | 200 while every backend answers; `?verbose` for details |
//! | `/debug/calls` | every call in flight; `?format=json` |
//! | `/debug` | a list of the pages that the navigation does not name |
//! | `/debug/pods` | the pods; `?format=json` for episodes, with `&by=pod` for pods |
//! | `/debug/pods/NAMESPACE/NAME` | the story of a pod; `?format=json` |
//! | `/debug/images/pulls` | images being pulled, and recent pulls; `?format=json` |
//! | `/debug/rpcz` | rates, errors and latencies by method; `?format=json` |
//! | `/debug/flight` | the flight recorder; `?format=json`, `?format=perfetto`, `?pod=NAMESPACE/NAME`, `?method=` |
//! | `/debug/tracez` | its samples of calls by latency, and of errors; `?format=json`, `?method=`; as a page part of the above |
//! | `/debug/backends` | runtimes and the routing of calls to them; `?format=json` |
//! | `/debug/routes` | the routing; `?format=json`; as a page part of the above |
//! | `/debug/config` | settings; `?format=json` |
//! | `/debug/faults` | GET the faults that are injected; over the socket, POST one and DELETE one (`?number=`) or all |
//! | `/debug/capture` | over the socket: what `criscope capture` adds to the journal |
//! | `/debug/requests` | over the socket: POST begins to record requests, POST `/debug/requests/take` takes them, DELETE ends it |
//! | `/debug/log-level` | GET the log filter; over the socket, PUT a new one |
//!
//! Plain text becomes a page for a browser, by `Accept` (`plain`). Every page opens with its verdict.
//!
//! The endpoint does not run on the thread of the request path, so a slow scrape cannot delay calls. Connections, request heads,
//! large responses and their duration are bounded (`serve`); requests over TCP must name a known host (`hosts`).

mod accept;
mod backends;
pub mod calls;
mod captured;
mod commands;
mod faults;
pub mod flight;
pub mod health;
mod hosts;
pub mod in_effect;
mod kubelet_pods;
mod links;
mod listed;
pub mod live;
mod methods;
mod nav;
mod near;
pub mod page;
mod plain;
pub mod pods;
mod pull_verdict;
pub mod pulls;
pub mod remote;
mod requests;
pub mod routes;
pub mod rpcz;
pub mod runtimes;
pub mod scrape;
mod serve;
mod sessions;
pub mod settings;
mod starts;
mod story;
mod table;
pub mod tracez;
mod verdict;
mod waterfall;

#[cfg(test)]
mod contrast;
#[cfg(test)]
mod gallery;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, FromRef, State};
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;

pub use self::captured::{PAGES, app as captured_app, serve_captured};
use self::hosts::AllowedHosts;
use self::nav::PageNavigation;
use self::page::add_report;
pub use self::pulls::PullProgressReader;
use self::serve::UnixSocketPeer;
use crate::lifecycle::Stories;
use crate::lifecycle::capture::requests::RequestRecording;
use crate::lifecycle::containerd::PullProgress;
use crate::lifecycle::rates::CallRates;
use crate::lifecycle::recorder::{DumpWriter, FlightRecorder};
use crate::proxy::backend::Backend;
use crate::proxy::faults::ActiveFaults;
use crate::proxy::instrument::InFlightCalls;
use crate::proxy::router::settings::RoutingSettings;
use crate::settings::EffectiveSettings;
use crate::telemetry::logging::{AUDIT_TARGET, LogHandle};
use crate::telemetry::registry::Registry;
use crate::watchdog::Heartbeat;

/// The state that the pages show.
#[derive(Clone, Debug)]
pub struct PageSources {
    /// Metrics.
    pub registry: Arc<Registry>,
    /// Calls in flight.
    pub in_flight: Arc<InFlightCalls>,
    /// Backends.
    pub backends: Vec<Arc<Backend>>,
    /// The stories of pods.
    pub stories: Arc<Stories>,
    /// Recently ended calls.
    pub recorder: Arc<FlightRecorder>,
    /// Rates and latencies of calls.
    pub rates: Arc<CallRates>,
    /// The flight recorder on disk.
    pub dumps: Arc<DumpWriter>,
    /// The image pulls of the built-in runtime, if it is enabled.
    pub pulling: Option<PullProgressReader>,
    /// Those of containerd.
    pub pull_progress: Arc<PullProgress>,
    /// Faults that are injected; `None` unless they are enabled.
    pub faults: Option<Arc<ActiveFaults>>,
    /// The recording of requests.
    pub requests: Arc<RequestRecording>,
    /// The directory of the journal.
    pub state_dir: Arc<Path>,
    /// The settings in effect.
    pub config: Arc<ArcSwap<EffectiveSettings>>,
    /// The routing rules.
    pub routing: Arc<RoutingSettings>,
    /// The liveness of the request path.
    pub heartbeat: Arc<Heartbeat>,
    /// The kubelet's directory.
    pub kubelet_dir: PathBuf,
    /// The page of a trace, with `{trace_id}`.
    pub trace_url: Option<String>,
    /// The log filter.
    pub log: LogHandle,
    /// The start of the process.
    pub started: Instant,
}

/// The state that the pages of pods show.
#[derive(Clone, Debug)]
pub struct PodPageSources {
    /// The stories of pods.
    pub stories: Arc<Stories>,
    /// Calls in flight.
    pub in_flight: Arc<InFlightCalls>,
    /// The kubelet's directory, on a node.
    pub kubelet_dir: Option<PathBuf>,
    /// The page of a trace, with `{trace_id}`.
    pub trace_url: Option<String>,
}

impl FromRef<PageSources> for PodPageSources {
    fn from_ref(sources: &PageSources) -> Self {
        Self {
            stories: Arc::clone(&sources.stories),
            in_flight: Arc::clone(&sources.in_flight),
            kubelet_dir: Some(sources.kubelet_dir.clone()),
            trace_url: sources.trace_url.clone(),
        }
    }
}

/// The endpoint cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("admin endpoint {address}: {source}")]
pub struct AdminBindError {
    /// The configured address.
    address: SocketAddr,
    /// The error of the kernel.
    source: io::Error,
}

/// Binds the address.
///
/// # Errors
/// If it is in use or not local.
pub fn bind(address: SocketAddr) -> Result<TcpListener, AdminBindError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| AdminBindError { address, source })
}

/// Largest body of a request, in bytes: a log level.
const MAX_REQUEST_BODY_BYTES: usize = 4 << 10;

/// Serves the port until `stop`, read-only.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    sources: PageSources,
    settings: settings::AdminSettings,
    stop: CancellationToken,
) -> io::Result<()> {
    let hosts = AllowedHosts::new(&settings.allowed_hosts, &live::host());
    let app = app(sources, settings.debug).layer(from_fn_with_state(hosts, hosts::check));
    serve::tcp(listener, app, stop).await
}

/// Serves the socket until `stop`: every page, and changes of the log level.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve_socket(
    listener: UnixListener,
    sources: PageSources,
    stop: CancellationToken,
) -> io::Result<()> {
    serve::unix(listener, app_for_root(sources), stop).await
}

/// Serves the socket of agents until `stop`: metrics, health, and the pages that agents show, read-only. The mode of the socket
/// says who may connect.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve_agents(
    listener: UnixListener,
    sources: PageSources,
    stop: CancellationToken,
) -> io::Result<()> {
    let app = finished(agent_pages(always()), None, sources);
    serve::by_mode(listener, app, stop).await
}

/// The routes over TCP, without those below `/debug` if `debug` is off.
pub fn app(sources: PageSources, debug: bool) -> Router {
    if !debug {
        let app = always().route("/", get(live::bare));
        return finished(app, Some(PageNavigation::Lone), sources);
    }
    let log_level = get(log_level).put(only_over_the_socket);
    let app = pages(always())
        .route("/debug/log-level", log_level)
        .route("/debug/faults", get(faults::list));
    finished(app, Some(PageNavigation::Full), sources)
}

fn app_for_root(sources: PageSources) -> Router {
    let log_level = get(log_level).put(set_log_level);
    let faults = get(faults::list).post(faults::add).delete(faults::clear);
    let app = pages(always())
        .route("/debug/log-level", log_level)
        .route("/debug/faults", faults)
        .route("/debug/capture", get(captured::snapshot))
        .route(
            "/debug/requests",
            post(requests::begin).delete(requests::end),
        )
        .route("/debug/requests/take", post(requests::take))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BODY_BYTES));
    finished(app, Some(PageNavigation::Full), sources)
}

fn always() -> Router<PageSources> {
    Router::new()
        .route("/metrics", get(scrape::metrics))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
}

/// The pages that an agent shows to users of the cluster.
fn agent_pages(app: Router<PageSources>) -> Router<PageSources> {
    let calls = ("/debug/calls", "Calls in flight");
    let app = add_report(app, calls, calls::rows, |rows| calls::page(rows));
    let pulls = ("/debug/images/pulls", "Images");
    let app = add_report(app, pulls, pulls::pulls, pulls::html);
    let rates = ("/debug/rpcz", "Calls by method");
    add_report(app, rates, rpcz::rates, rpcz::html)
        .route("/", get(live::page))
        .route("/debug/pods", get(pods::list))
        .route("/debug/pods/{namespace}/{name}", get(pods::one))
}

fn pages(app: Router<PageSources>) -> Router<PageSources> {
    let config = ("/debug/config", "Settings in effect");
    add_report(
        agent_pages(app),
        config,
        in_effect::settings,
        in_effect::html,
    )
    .route("/debug", get(page::debug))
    .route("/debug/tracez", get(tracez::page))
    .route("/debug/flight", get(flight::page))
    .route("/debug/backends", get(runtimes::page))
    .route("/debug/routes", get(routes::page))
}

/// The routes with what all have. An endpoint without navigation is for programs: plain text is never shown in a page there.
fn finished(
    app: Router<PageSources>,
    navigation: Option<PageNavigation>,
    sources: PageSources,
) -> Router {
    let mut app = app.fallback(no_page);
    if let Some(navigation) = navigation {
        app = app.layer(from_fn_with_state(navigation, plain::as_pages));
    }
    app.layer(map_response(page::secure)).with_state(sources)
}

/// The response to an unknown path, so that a browser does not show an empty window.
async fn no_page() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "page not found; see / for a list of pages\n",
    )
}

async fn log_level(State(sources): State<PageSources>) -> String {
    sources.log.level()
}

async fn only_over_the_socket() -> Response {
    let text = "the log level can only be changed over the socket of admin.socket\n";
    let allow = [(header::ALLOW, "GET, HEAD")];
    (StatusCode::METHOD_NOT_ALLOWED, allow, text).into_response()
}

async fn set_log_level(
    State(sources): State<PageSources>,
    Extension(caller): Extension<UnixSocketPeer>,
    level: String,
) -> Response {
    let level = level.trim();
    let before = sources.log.level();
    match sources.log.set_level(level) {
        Ok(()) => {
            // Written at any level.
            tracing::info!(
                target: AUDIT_TARGET,
                event = "log.level",
                after = level,
                before,
                uid = caller.uid,
                pid = caller.pid,
                "log level changed"
            );
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}
