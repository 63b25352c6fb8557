//! Requests: how one is sent, what each status means, and when it is worth another try.

use std::future::Future;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Request, Response, StatusCode};
use serde::Deserialize;

use crate::runtime::error::shown;
use crate::runtime::image::config::Patience;
use crate::runtime::image::error::Error;

/// Of the body of a refusal.
const MAX_REFUSAL: u64 = 8 << 10;
/// Less than so many bytes within [`Patience::stall`] is no progress.
pub(super) const PROGRESS: u64 = 64 << 10;
/// An answer that must be small is whole within so many times [`Patience::stall`].
const WHOLE: u32 = 4;

/// An error, and whether another try may help.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) retry: Option<Retry>,
}

/// Another try may help.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    /// As the host has asked.
    after: Option<Duration>,
}

pub(super) type Tried<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, retry: None }
    }
}

impl Failure {
    /// The network, or what stands for it: worth another try.
    pub(super) fn network(host: &str, reason: impl Into<String>) -> Self {
        let (host, reason) = (host.to_owned(), reason.into());
        Self {
            error: Error::RegistryUnavailable { host, reason },
            retry: Some(Retry::default()),
        }
    }

    pub(super) fn bad(host: &str, reason: impl Into<String>) -> Self {
        let (host, reason) = (host.to_owned(), reason.into());
        Error::BadAnswer { host, reason }.into()
    }

    /// What an answer other than the wanted one means.
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
            _ => Error::BadAnswer { host, reason }.into(),
        }
    }

    fn later(response: &Response, host: String, reason: String) -> Self {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| {
            // The other form, a date, is for maintenance windows: no wait of ours is that long.
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

/// Sends a request and waits for the beginning of its answer.
pub(super) async fn send(
    client: &Client,
    request: Request,
    host: &str,
    stall: Duration,
) -> Tried<Response> {
    match tokio::time::timeout(stall, client.execute(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(Failure::network(host, words(error))),
        Err(_) => Err(Failure::network(
            host,
            format!("no answer within {} s", stall.as_secs_f32()),
        )),
    }
}

/// The whole chain of causes, without the address: it may hold a signature.
pub(super) fn words(error: reqwest::Error) -> String {
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

/// A body that must be small.
pub(super) async fn read_body(
    response: Response,
    most: u64,
    host: &str,
    stall: Duration,
) -> Tried<Vec<u8>> {
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

/// A body piece by piece. A trickle counts as standing still.
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

    pub(super) async fn next(&mut self) -> Tried<Option<Bytes>> {
        let chunk = tokio::time::timeout_at(self.deadline, self.response.chunk()).await;
        let Ok(chunk) = chunk else {
            let reason = format!(
                "less than {PROGRESS} bytes within {} s",
                self.stall.as_secs_f32()
            );
            return Err(Failure::network(&self.host, reason));
        };
        let chunk = chunk.map_err(|error| Failure::network(&self.host, words(error)))?;
        self.since += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if self.since >= PROGRESS {
            self.since = 0;
            self.deadline = tokio::time::Instant::now() + self.stall;
        }
        Ok(chunk)
    }

    /// How long the receiver took is not the sender's fault.
    pub(super) fn excuse(&mut self, taken: Duration) {
        self.deadline += taken;
    }
}

#[derive(Deserialize)]
struct Refusal {
    errors: Vec<RefusalEntry>,
}

#[derive(Deserialize)]
struct RefusalEntry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// What the host says about a refusal (OCI distribution, "Error Codes"), cut and on one line.
pub(super) async fn refusal(response: Response, host: &str, stall: Duration) -> (Response, String) {
    let status = response.status();
    let body = read_body(response, MAX_REFUSAL, host, stall)
        .await
        .unwrap_or_default();
    let first = serde_json::from_slice::<Refusal>(&body)
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

/// Tries until it works, helps no more, or has been tried too often.
pub(super) async fn persist<T, F, Fut>(
    patience: &Patience,
    retries: u32,
    mut attempt: F,
) -> Tried<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Tried<T>>,
{
    let mut tries = 0;
    loop {
        match attempt().await {
            Err(Failure {
                retry: Some(retry),
                error,
            }) if tries < retries => {
                tracing::debug!(error = %shown(&error), tries, "trying again");
                pause(patience, tries, retry).await;
                tries += 1;
            }
            result => return result,
        }
    }
}

/// Longer each time, at least as long as the host asks for, never longer than agreed.
pub(super) async fn pause(patience: &Patience, tries: u32, retry: Retry) {
    let doubled = patience.backoff.saturating_mul(1 << tries.min(16));
    let wanted = doubled.max(retry.after.unwrap_or_default());
    let wanted = wanted.min(patience.max_backoff);
    // Nodes that were refused together do not come back together.
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    let spread = wanted.mul_f64(f64::from(nanos % 1000) / 4000.0);
    tokio::time::sleep(wanted + spread).await;
}
