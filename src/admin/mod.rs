//! The HTTP endpoint beside the request path. It only reads.
//!
//! | path | what |
//! |---|---|
//! | `/` | the live page; `?format=json` |
//! | `/metrics` | Prometheus text format 0.0.4, or OpenMetrics 1.0.0 for who asks for it |
//! | `/livez` | 200 while the request path turns |
//! | `/readyz` | 200 while every backend answers; `?verbose` says more |
//! | `/debug/calls` | every call in flight; `?format=json` |
//! | `/debug/pods`, `/debug/pods/NAMESPACE/NAME` | the stories of pods; `?format=json` |
//! | `/debug/images/pulls` | images being pulled, and recent pulls; `?format=json` |
//! | `/debug/rpcz` | rates, errors and latencies by method; `?format=json` |
//! | `/debug/tracez` | samples of calls by latency, and of errors; `?format=json`, `?method=` |
//! | `/debug/flight` | the flight recorder; `?format=json`, `?format=perfetto`, `?pod=NAMESPACE/NAME`, `?method=` |
//! | `/debug/backends`, `/debug/routes`, `/debug/config` | runtimes, rules and settings; `?format=json` |
//! | `/debug/log-level` | GET the log filter, PUT a new one |
//!
//! It runs on a thread of its own: a slow scrape costs the request path nothing.

mod backends;
pub mod calls;
mod figures;
pub mod flight;
pub mod health;
mod links;
pub mod live;
mod methods;
mod nav;
mod near;
pub mod page;
pub mod pods;
pub mod pulls;
pub mod routes;
pub mod rpcz;
pub mod runtimes;
pub mod scrape;
mod sessions;
pub mod settings;
mod starts;
mod story;
pub mod tracez;
mod waterfall;

#[cfg(test)]
mod contrast;
#[cfg(test)]
mod gallery;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

pub use self::pulls::Pulling;
use crate::config::InEffect;
use crate::instrument::InFlight;
use crate::story::Stories;
use crate::story::rates::Rates;
use crate::story::recorder::{Dumps, Recorder};
use crate::story::sampler::Sightings;
use crate::telemetry::logging::LogHandle;
use crate::telemetry::registry::Registry;
use crate::upstream::Upstream;
use crate::watchdog::Heartbeat;

/// What the pages read.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Metrics.
    pub registry: Arc<Registry>,
    /// Calls in flight.
    pub in_flight: Arc<InFlight>,
    /// Backends.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The stories of pods.
    pub stories: Arc<Stories>,
    /// The last calls that ended.
    pub recorder: Arc<Recorder>,
    /// How often and how long calls are.
    pub rates: Arc<Rates>,
    /// The flight recorder on disk.
    pub dumps: Arc<Dumps>,
    /// What the runtime does for calls in flight.
    pub sightings: Arc<Sightings>,
    /// The image pulls of the built-in runtime, if there is one.
    pub pulling: Option<Pulling>,
    /// The settings in effect.
    pub config: InEffect,
    /// Whether the request path turns.
    pub heartbeat: Arc<Heartbeat>,
    /// The log filter.
    pub log: LogHandle,
    /// When we began.
    pub started: Instant,
}

/// The endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("admin endpoint {address}: {source}")]
pub struct BindError {
    /// The address asked for.
    address: SocketAddr,
    /// What the kernel said.
    source: io::Error,
}

/// Binds the address.
///
/// # Errors
/// If it is taken, or not ours.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| BindError { address, source })
}

/// Serves until `stop`.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    sources: Sources,
    debug: bool,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(listener, app(sources, debug))
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// The routes. With `debug` off there is nothing below `/debug`.
pub fn app(sources: Sources, debug: bool) -> Router {
    let mut app = Router::new()
        .route("/metrics", get(scrape::metrics))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz));
    if debug {
        app = app
            .route("/", get(live::page))
            .route("/debug/calls", get(calls::page))
            .route("/debug/pods", get(pods::list))
            .route("/debug/pods/{namespace}/{name}", get(pods::one))
            .route("/debug/images/pulls", get(pulls::page))
            .route("/debug/rpcz", get(rpcz::page))
            .route("/debug/tracez", get(tracez::page))
            .route("/debug/flight", get(flight::page))
            .route("/debug/backends", get(runtimes::page))
            .route("/debug/routes", get(routes::page))
            .route("/debug/config", get(settings::page))
            .route("/debug/log-level", get(log_level).put(set_log_level));
    } else {
        app = app.route("/", get(live::bare));
    }
    app.fallback(no_page)
        .layer(map_response(page::secure))
        .with_state(sources)
}

/// Whoever mistypes an address gets a word, not an empty window.
async fn no_page() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "there is no such page; / leads to those that there are\n",
    )
}

async fn log_level(State(sources): State<Sources>) -> String {
    sources.log.level()
}

async fn set_log_level(State(sources): State<Sources>, level: String) -> Response {
    let level = level.trim();
    match sources.log.set_level(level) {
        Ok(()) => {
            tracing::info!(event = "log.level", level, "log level changed");
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}
