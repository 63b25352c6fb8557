//! HTTP requests: sending, and deciding on retries.

use std::time::{Duration, Instant, SystemTime};

use reqwest::{Client, Request, RequestBuilder, Response, Url};

use super::endpoint::Endpoint;
use super::node_address::host_and_port;
use super::retries::{Retries, Retry};
use crate::config::{ImageStoreConfig, Timeouts};
use crate::error::{Error, TIMED_OUT};
use crate::requests;

/// An error, and whether a retry may help.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) retry: Option<Retry>,
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

    /// A server that took longer than a time limit.
    pub(super) fn silent(host: &str, reason: impl Into<String>) -> Self {
        let retry = Retry {
            is_after_silence: true,
            ..Retry::default()
        };
        let reason = format!("{TIMED_OUT}{}", reason.into());
        Self {
            retry: Some(retry),
            ..Self::network(host, reason)
        }
    }

    /// Returns whether the server took longer than a time limit.
    pub(super) fn is_silence(&self) -> bool {
        self.retry.is_some_and(|retry| retry.is_after_silence)
    }

    /// A response that violates the protocol.
    pub(super) fn bad(host: &str, reason: impl Into<String>) -> Self {
        let (host, reason) = (host.to_owned(), reason.into());
        Error::BadResponse { host, reason }.into()
    }
}

/// A server that requests are sent to: a host of a registry, or where it leads.
#[derive(Clone, Debug)]
pub(super) struct Server<'a> {
    client: &'a Client,
    /// Its time limit for a connection.
    connect: Duration,
    /// Host and port, for errors.
    pub(super) host: String,
    /// Its address. Only a server without TLS may have a token service without it.
    pub(super) url: Url,
}

impl<'a> Server<'a> {
    /// An endpoint itself.
    pub(super) fn new(endpoint: &'a Endpoint) -> Self {
        Self {
            client: &endpoint.client,
            connect: endpoint.connect,
            host: endpoint.host.clone(),
            url: endpoint.base.clone(),
        }
    }

    /// The server of a URL, which is reached like an endpoint. Only the host appears in errors: the rest of the URL may be as secret
    /// as a password.
    pub(super) fn at(url: &Url, endpoint: &'a Endpoint) -> Self {
        Self {
            host: host_and_port(url),
            url: url.clone(),
            ..Self::new(endpoint)
        }
    }

    /// The same client for another URL, with a name for errors.
    pub(super) fn named(&self, url: &Url, host: String) -> Self {
        Self {
            host,
            url: url.clone(),
            ..self.clone()
        }
    }

    /// Begins a GET request.
    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// Begins a POST request.
    pub(super) fn post(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// Sends a request and waits for the response headers.
    pub(super) async fn send(&self, request: Request, timeouts: &Timeouts) -> Attempt<Response> {
        requests::asked(&self.host);
        let began = Instant::now();
        let sent = tokio::time::timeout(timeouts.stall, self.client.execute(request)).await;
        let Ok(sent) = sent else {
            let seconds = timeouts.stall.as_secs_f32();
            let reason = format!("no answer within {seconds} s");
            return Err(Failure::silent(&self.host, reason));
        };
        sent.map_err(|error| {
            // The kernel has time limits of its own, for packets without an acknowledgement.
            let is_ours = error.is_connect() && began.elapsed() >= self.connect;
            let is_timeout = error.is_timeout();
            let reason = if is_timeout && is_ours {
                let seconds = self.connect.as_secs_f32();
                format!("no connection within {seconds} s (name, TCP, TLS)")
            } else {
                error_chain(error)
            };
            if is_timeout {
                Failure::silent(&self.host, reason)
            } else {
                Failure::network(&self.host, reason)
            }
        })
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

/// Retries a request until it succeeds, fails permanently, or has used up its retries.
pub(super) async fn retry<T, F, Fut>(
    config: &ImageStoreConfig,
    mut retries: Retries,
    mut attempt: F,
) -> Attempt<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Attempt<T>>,
{
    let mut tries = 0;
    loop {
        let failure = match attempt().await {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let Some(retry) = failure.retry.filter(|retry| retries.take(*retry)) else {
            return Err(failure);
        };
        let error = config.observer.error_text(&failure.error);
        tracing::debug!(error.message = %error, tries, "retrying a registry request");
        pause(&config.timeouts, tries, retry).await;
        tries += 1;
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
