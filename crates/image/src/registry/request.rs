//! HTTP requests: sending, interpreting status codes, and deciding on retries.

use std::future::Future;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Request, Response, StatusCode};
use serde::Deserialize;

use super::Host;
use crate::config::Timeouts;
use crate::error::Error;
use crate::json;

/// Maximum bytes read of the body of an error response.
const MAX_REFUSAL: u64 = 8 << 10;
/// Fewer bytes within [`Timeouts::stall`] count as a stalled transfer.
pub(super) const PROGRESS: u64 = 64 << 10;
/// A small response must be complete within this many times [`Timeouts::stall`].
const WHOLE: u32 = 4;

/// An error, and whether a retry may help.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) retry: Option<Retry>,
}

/// A retry may help, after this pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    /// The host's `Retry-After`.
    after: Option<Duration>,
}

pub(super) type Attempt<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, retry: None }
    }
}

impl Failure {
    /// A failure of the network or of a server, which may be temporary.
    pub(super) fn network(host: &str, reason: impl Into<String>) -> Self {
        let (host, reason) = (host.to_owned(), reason.into());
        Self {
            error: Error::RegistryUnavailable { host, reason },
            retry: Some(Retry::default()),
        }
    }

    /// A response that violates the protocol.
    pub(super) fn bad(host: &str, reason: impl Into<String>) -> Self {
        let (host, reason) = (host.to_owned(), reason.into());
        Error::BadResponse { host, reason }.into()
    }

    /// Interprets a status other than success.
    pub(super) fn of_status(response: &Response, host: &str, said: &str) -> Self {
        let status = response.status();
        let reason = if said.is_empty() {
            format!("HTTP {status}")
        } else {
            format!("HTTP {status}: {said}")
        };
        let host = host.to_owned();
        match status {
            StatusCode::UNAUTHORIZED => Error::Unauthenticated { host, reason }.into(),
            StatusCode::FORBIDDEN => Error::PermissionDenied { host, reason }.into(),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                let what = format!("{host}: {reason}");
                Error::NotFound { what }.into()
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Self::later(response, host, reason)
            }
            status if status.is_server_error() => Self::later(response, host, reason),
            _ => Error::BadResponse { host, reason }.into(),
        }
    }

    fn later(response: &Response, host: String, reason: String) -> Self {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| {
            // The other form, a date, announces maintenance: longer than any pause here.
            value
                .to_str()
                .ok()?
                .trim()
                .parse()
                .ok()
                .map(Duration::from_secs)
        });
        Self {
            error: Error::RegistryUnavailable { host, reason },
            retry: Some(Retry { after }),
        }
    }
}

/// Sends a request and waits for the response headers.
pub(super) async fn send(
    client: &Client,
    request: Request,
    host: &str,
    stall: Duration,
) -> Attempt<Response> {
    match tokio::time::timeout(stall, client.execute(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(Failure::network(host, error_chain(error))),
        Err(_) => Err(Failure::network(
            host,
            format!("no answer within {} s", stall.as_secs_f32()),
        )),
    }
}

/// Returns the chain of causes without the URL, which may contain a signature.
pub(super) fn error_chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// Reads a body of at most `most` bytes.
pub(super) async fn read_body(
    response: Response,
    most: u64,
    host: &str,
    stall: Duration,
) -> Attempt<Vec<u8>> {
    let too_large = || {
        Failure::from(Error::TooLarge {
            what: format!("answer of {host}"),
            reason: format!("more than {most} bytes"),
        })
    };
    if response
        .content_length()
        .is_some_and(|length| length > most)
    {
        return Err(too_large());
    }
    let mut chunks = Chunks::new(response, host.to_owned(), stall);
    let mut body = Vec::new();
    let whole = tokio::time::Instant::now() + stall * WHOLE;
    let late = |_| {
        let seconds = (stall * WHOLE).as_secs_f32();
        Failure::network(host, format!("no whole answer within {seconds} s"))
    };
    while let Some(chunk) = tokio::time::timeout_at(whole, chunks.next())
        .await
        .map_err(late)??
    {
        if body.len() as u64 + chunk.len() as u64 > most {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A body in chunks. A trickle counts as stalled.
pub(super) struct Chunks {
    response: Response,
    host: String,
    stall: Duration,
    deadline: tokio::time::Instant,
    since: u64,
}

impl Chunks {
    pub(super) fn new(response: Response, host: String, stall: Duration) -> Self {
        Self {
            response,
            host,
            stall,
            deadline: tokio::time::Instant::now() + stall,
            since: 0,
        }
    }

    pub(super) async fn next(&mut self) -> Attempt<Option<Bytes>> {
        let chunk = tokio::time::timeout_at(self.deadline, self.response.chunk()).await;
        let Ok(chunk) = chunk else {
            let reason = format!(
                "less than {PROGRESS} bytes within {} s",
                self.stall.as_secs_f32()
            );
            return Err(Failure::network(&self.host, reason));
        };
        let chunk = chunk.map_err(|error| Failure::network(&self.host, error_chain(error)))?;
        self.since += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if self.since >= PROGRESS {
            self.since = 0;
            self.deadline = tokio::time::Instant::now() + self.stall;
        }
        Ok(chunk)
    }

    /// Extends the deadline by the time that the receiver took.
    pub(super) fn excuse(&mut self, taken: Duration) {
        self.deadline += taken;
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    errors: Vec<RefusalEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RefusalEntry {
    code: String,
    message: String,
}

/// Returns the error code and message of a response (OCI distribution, "Error Codes") as one truncated line.
pub(super) async fn refusal(response: Response, host: &str, stall: Duration) -> (Response, String) {
    let status = response.status();
    let body = read_body(response, MAX_REFUSAL, host, stall)
        .await
        .unwrap_or_default();
    let first = json::from_slice::<Refusal>(&body)
        .ok()
        .and_then(|r| r.errors.into_iter().next());
    let said = first
        .map(|entry| format!("{} {}", entry.code, entry.message))
        .unwrap_or_default();
    let said: String = said
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let mut empty = http::Response::new(Vec::new());
    *empty.status_mut() = status;
    (empty.into(), said)
}

impl Host {
    /// Retries a request until it succeeds, fails permanently, or has used up its retries.
    pub(super) async fn retry<T, F, Fut>(&self, mut attempt: F) -> Attempt<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Attempt<T>>,
    {
        let mut tries = 0;
        loop {
            match attempt().await {
                Err(Failure {
                    retry: Some(retry),
                    error,
                }) if tries < self.retries => {
                    let error = self.observer.error_text(&error);
                    tracing::debug!(error.message = %error, tries, "retrying a registry request");
                    pause(&self.timeouts, tries, retry).await;
                    tries += 1;
                }
                result => return result,
            }
        }
    }
}

/// Pauses before a retry: exponentially longer, at least `Retry-After`, at most [`Timeouts::max_backoff`].
pub(super) async fn pause(timeouts: &Timeouts, tries: u32, retry: Retry) {
    let doubled = timeouts.backoff.saturating_mul(1 << tries.min(16));
    let wanted = doubled.max(retry.after.unwrap_or_default());
    let wanted = wanted.min(timeouts.max_backoff);
    // Jitter, so that nodes that were rejected together do not retry together.
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    let spread = wanted.mul_f64(f64::from(nanos % 1000) / 4000.0);
    tokio::time::sleep(wanted + spread).await;
}
