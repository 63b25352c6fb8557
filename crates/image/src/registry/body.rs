//! Bodies of responses: their size and speed are up to the server, so both have limits.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::request::{Attempt, Failure, error_chain};
use crate::config::Timeouts;
use crate::error::Error;
use crate::requests;

/// A small body must be complete within this many times [`Timeouts::stall`].
const SMALL_BODY_STALLS: u32 = 4;

/// How long the body of an error is waited for: the status says the most important.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a body of at most `most` bytes.
pub(super) async fn read_body(
    response: Response,
    most: u64,
    host: &str,
    timeouts: &Timeouts,
) -> Attempt<Vec<u8>> {
    if response
        .content_length()
        .is_some_and(|length| length > most)
    {
        return Err(too_large(host, most));
    }
    let mut chunks = Chunks::new(response, host.to_owned(), timeouts);
    let mut body = Vec::new();
    let limit = timeouts.stall.saturating_mul(SMALL_BODY_STALLS);
    let end = Instant::now() + limit;
    loop {
        let Ok(chunk) = timeout_at(end, chunks.next()).await else {
            let (bytes, seconds) = (body.len(), limit.as_secs_f32());
            let reason = format!("no whole answer within {seconds} s, only {bytes} bytes");
            return Err(Failure::silent(host, reason));
        };
        let Some(chunk) = chunk? else {
            return Ok(body);
        };
        if body.len() as u64 + chunk.len() as u64 > most {
            return Err(too_large(host, most));
        }
        body.extend_from_slice(&chunk);
    }
}

fn too_large(host: &str, most: u64) -> Failure {
    let reason = format!("more than {most} bytes");
    Error::too_large(format!("answer of {host}"), reason).into()
}

/// Reads the beginning of the body of an error: at most `most` bytes, and only bytes that arrive in time.
pub(super) async fn read_beginning(
    mut response: Response,
    most: usize,
    timeouts: &Timeouts,
) -> Vec<u8> {
    let end = Instant::now() + timeouts.stall.min(ERROR_BODY_TIMEOUT);
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = timeout_at(end, response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() >= most {
            body.truncate(most);
            break;
        }
    }
    body
}

/// A body in chunks. A server that sends nothing, or less than the least rate, counts as silent.
pub(super) struct Chunks {
    response: Response,
    host: String,
    stall: Duration,
    /// Bytes that must arrive within `stall`.
    least: u64,
    deadline: Instant,
    /// Bytes that have arrived since the deadline was set.
    since: u64,
}

impl Chunks {
    pub(super) fn new(response: Response, host: String, timeouts: &Timeouts) -> Self {
        Self {
            response,
            host,
            stall: timeouts.stall,
            least: timeouts.least_bytes(),
            deadline: Instant::now() + timeouts.stall,
            since: 0,
        }
    }

    pub(super) async fn next(&mut self) -> Attempt<Option<Bytes>> {
        let chunk = timeout_at(self.deadline, self.response.chunk()).await;
        let Ok(chunk) = chunk else {
            let (since, least) = (self.since, self.least);
            let seconds = self.stall.as_secs_f32();
            let reason = format!("{since} bytes in {seconds} s, less than {least}");
            return Err(Failure::silent(&self.host, reason));
        };
        let chunk = chunk.map_err(|error| Failure::network(&self.host, error_chain(error)))?;
        let length = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        requests::received(length);
        self.since += length;
        if self.since >= self.least {
            self.since = 0;
            self.deadline = Instant::now() + self.stall;
        }
        Ok(chunk)
    }

    /// Extends the deadline by the time that the receiver took.
    pub(super) fn excuse(&mut self, taken: Duration) {
        self.deadline += taken;
    }
}
