//! `criscope capture --requests`: fetches requests while the running criscope records them.

use std::time::{Duration, Instant};

use http::Method as Verb;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

pub(super) use crate::lifecycle::capture::requests::MAX_RECORDING_LEN;

use super::super::CommandFailure;
use super::super::ask::AdminEndpoint;
use super::super::output;
use crate::lifecycle::capture::RequestsHead;
use crate::lifecycle::capture::requests::{RecordedBatch, RecordedCall, RecordingRequest};
use crate::pages::source::{PageError, PageSource as _};
use crate::units;
use crate::units::times::UnixMicros;

const REQUESTS_PAGE: &str = "/debug/requests";

/// The daemon keeps 16 MiB until they are fetched.
const FETCH_INTERVAL: Duration = Duration::from_millis(500);

/// Records for this time, or until Ctrl-C.
///
/// # Errors
/// If the running criscope refuses or goes away.
pub(super) async fn record(
    endpoint: &AdminEndpoint,
    lasts: Duration,
    max_bytes: u64,
) -> Result<(RequestsHead, Vec<RecordedCall>), CommandFailure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let from = UnixMicros::now();
    let wish = RecordingRequest {
        for_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
        max_bytes,
    };
    let wish = serde_json::to_vec(&wish).map_err(std::io::Error::from)?;
    let begun = endpoint.change(Verb::POST, REQUESTS_PAGE, wish).await;
    begun.map_err(only_root)?;
    output::hint(format_args!(
        "recording requests, with the secrets in them, for {}; Ctrl-C ends it early",
        units::duration(lasts.as_secs_f64() * 1e3)
    ));
    let mut calls = Vec::new();
    let end = Instant::now() + lasts;
    let last = loop {
        let rest = end.saturating_duration_since(Instant::now());
        let stopped = tokio::select! {
            () = sleep(rest.min(FETCH_INTERVAL)) => rest.is_zero(),
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        let mut part = if stopped {
            fetch(endpoint, Verb::DELETE, REQUESTS_PAGE).await?
        } else {
            fetch(endpoint, Verb::POST, "/debug/requests/take").await?
        };
        calls.append(&mut part.calls);
        if stopped || part.over {
            break part;
        }
    };
    if last.dropped > 0 {
        output::hint(format_args!(
            "{} calls were left out: the recording was full (--max-mib)",
            last.dropped
        ));
    }
    let head = RequestsHead {
        warning: RequestsHead::WARNING.to_owned(),
        from_unix_us: from,
        until_unix_us: UnixMicros::now(),
        calls: calls.len() as u64,
        dropped: last.dropped,
        unread: last.unread,
    };
    Ok((head, calls))
}

async fn fetch(
    endpoint: &AdminEndpoint,
    verb: Verb,
    path: &str,
) -> Result<RecordedBatch, PageError> {
    let body = endpoint.change(verb, path, Vec::new()).await?;
    endpoint.parse(path, &body)
}

/// The port does not have the page.
fn only_root(error: PageError) -> PageError {
    match error {
        PageError::NoPage { address, .. } => PageError::Refused {
            address,
            text: "requests are recorded over the socket of admin.socket only: run this as root"
                .to_owned(),
        },
        error => error,
    }
}
