//! A response other than the one that was asked for: its status, and what the server says about it.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::body::read_beginning;
use super::request::Failure;
use super::retries::Retry;
use super::warning::warnings;
use super::words::{clean, header_text, words};
use crate::config::Timeouts;
use crate::error::Error;

/// Most bytes that are read of the body.
const MAX_BODY: usize = 8 << 10;
/// Most characters of `Retry-After` that are shown.
const MAX_RETRY_AFTER: usize = 40;

/// The answer of a server that refuses, or fails.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    retry_after: String,
    /// What it says in the body; may be empty.
    words: String,
    warnings: Vec<String>,
}

impl Refusal {
    /// Reads the answer, as much as it sends in time.
    pub(super) async fn read(response: Response, timeouts: &Timeouts) -> Self {
        let (status, headers) = (response.status(), response.headers());
        let content_type = header_text(headers, &CONTENT_TYPE);
        let retry_after = header_text(headers, &RETRY_AFTER);
        let warnings = warnings(headers);
        let body = read_beginning(response, MAX_BODY, timeouts).await;
        Self {
            status,
            retry_after: clean(&retry_after, MAX_RETRY_AFTER),
            words: words(&content_type.to_ascii_lowercase(), &body),
            warnings,
        }
    }

    /// Its status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Replaces the words of the server, for instance to hide secrets that it repeats.
    pub(super) fn map_words(mut self, mut change: impl FnMut(String) -> String) -> Self {
        self.words = change(self.words);
        self.warnings = self.warnings.into_iter().map(change).collect();
        self
    }

    /// What the server says, after a colon; empty if it says nothing.
    pub(super) fn said(&self) -> String {
        let mut said = String::new();
        if !self.words.is_empty() {
            said = format!(": \"{}\"", self.words);
        }
        if !self.retry_after.is_empty() {
            let mut time = self.retry_after.clone();
            if self.seconds().is_some() {
                time.push_str(" s");
            }
            said = format!("{said}; it asks to wait: {time}");
        }
        for warning in &self.warnings {
            said = format!("{said}; it warns: \"{warning}\"");
        }
        said
    }

    /// Status and words.
    pub(super) fn reason(&self) -> String {
        format!("HTTP {}{}", self.status, self.said())
    }

    /// The seconds of `Retry-After`. The other form, a date, announces maintenance: longer than any pause of a pull.
    fn seconds(&self) -> Option<u64> {
        self.retry_after.parse().ok()
    }

    /// The failure of a request that was answered with it.
    pub(super) fn failure(&self, host: &str) -> Failure {
        let (host, reason) = (host.to_owned(), self.reason());
        match self.status {
            StatusCode::UNAUTHORIZED => Error::Unauthenticated { host, reason }.into(),
            StatusCode::FORBIDDEN => Error::PermissionDenied { host, reason }.into(),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                let what = format!("{host}: {reason}");
                Error::NotFound { what }.into()
            }
            status if self.is_temporary() || status.is_server_error() => Failure {
                error: Error::RegistryUnavailable { host, reason },
                retry: Some(Retry {
                    after: self.seconds().map(Duration::from_secs),
                    is_after_silence: false,
                }),
            },
            _ => Error::BadResponse { host, reason }.into(),
        }
    }

    /// Returns whether the server asks for the same request later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(
            self.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
    }
}
