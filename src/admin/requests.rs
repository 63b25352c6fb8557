//! Recording of requests, which hold secrets: `/debug/requests`, over the socket only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::sleep;

use super::PageSources;
use super::serve::UnixSocketPeer;
use crate::lifecycle::capture::requests::{RecordedBatch, RecordingError, RecordingRequest};
use crate::telemetry::logging::AUDIT_TARGET;

/// POST: begins a recording.
pub(super) async fn begin(
    State(sources): State<PageSources>,
    Extension(caller): Extension<UnixSocketPeer>,
    body: String,
) -> Response {
    let wish: RecordingRequest = match serde_json::from_str(&body) {
        Ok(wish) => wish,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let recording = Arc::clone(&sources.requests);
    if let Err(error) = recording.begin(wish, Instant::now()) {
        let status = match error {
            RecordingError::Busy => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        return (status, format!("{error}\n")).into_response();
    }
    // Written at any level.
    tracing::info!(
        target: AUDIT_TARGET,
        event = "requests.recorded",
        lasts_ms = wish.for_ms,
        uid = caller.uid,
        pid = caller.pid,
        "requests are recorded for criscope capture, with the secrets in them"
    );
    // Drops a recording that is not fetched, also on a node without calls.
    tokio::spawn(async move {
        while recording.expire(Instant::now()) {
            sleep(Duration::from_secs(1)).await;
        }
    });
    StatusCode::CREATED.into_response()
}

/// POST: takes the calls that were recorded since the last request.
pub(super) async fn take(State(sources): State<PageSources>) -> Json<RecordedBatch> {
    Json(sources.requests.take(Instant::now()))
}

/// DELETE: ends the recording, and takes the rest.
pub(super) async fn end(State(sources): State<PageSources>) -> Json<RecordedBatch> {
    Json(sources.requests.end(Instant::now()))
}
