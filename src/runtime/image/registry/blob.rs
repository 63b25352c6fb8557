//! A layer's blob: as many tries as make progress, each from where the last broke off, from whichever host has it.

use std::future::Future;

use bytes::Bytes;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode, Url};
use tokio::time::Instant;

use super::ask::Ask;
use super::request::{Chunks, Failure, Tried, pause};
use super::{Host, Session};
use crate::runtime::error::shown;
use crate::runtime::image::error::Result;
use crate::runtime::image::manifest::Descriptor;

/// So much progress and the count of tries begins anew: a network that breaks off now and then is not a dead one.
const WORTH_IT: u64 = 1 << 20;

/// Where the bytes go. `false`: nobody wants more.
struct Target<'a, S> {
    size: u64,
    position: u64,
    sink: &'a mut S,
}

impl Session {
    /// Gives the sink every byte from `from` on, in order, and not one more than the descriptor says. Whether they are
    /// the right ones is for the caller to check.
    pub(in crate::runtime::image) async fn blob<S, F>(
        &self,
        descriptor: &Descriptor,
        from: u64,
        mut sink: S,
    ) -> Result<()>
    where
        S: FnMut(Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let mut target = Target {
            size: descriptor.size,
            position: from,
            sink: &mut sink,
        };
        let mut last = None;
        for host in self.able(false) {
            let url = host.url(&self.name, &format!("blobs/{}", descriptor.digest));
            match host.blob(&url, &mut target).await {
                Ok(()) => return Ok(()),
                Err(failure) => last = Some(host.failed(failure)),
            }
        }
        Err(last.unwrap_or_else(|| self.nobody()))
    }
}

impl Host {
    async fn blob<S, F>(&self, url: &Url, target: &mut Target<'_, S>) -> Tried<()>
    where
        S: FnMut(Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let mut tries = 0;
        let mut mark = target.position;
        while target.position < target.size {
            let Err(failure) = self.stream(url, target).await else {
                return Ok(());
            };
            if target.position - mark >= WORTH_IT {
                (tries, mark) = (0, target.position);
            }
            let retry = failure.retry.filter(|_| tries < self.retries);
            let Some(retry) = retry else {
                return Err(failure);
            };
            tracing::debug!(error = %shown(&failure.error), position = target.position, "going on with a layer");
            pause(&self.patience, tries, retry).await;
            tries += 1;
        }
        Ok(())
    }

    /// One try. It ends well only if all is there, or nobody wants more.
    async fn stream<S, F>(&self, url: &Url, target: &mut Target<'_, S>) -> Tried<()>
    where
        S: FnMut(Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let ask = Ask {
            accept: None,
            from: target.position,
        };
        let response = self.ask(url, ask).await?;
        let mut skip = self.offset(&response, target.position, target.size)?;
        let host = &self.endpoint.host;
        let mut chunks = Chunks::new(response, host.clone(), self.patience.stall);
        while let Some(mut chunk) = chunks.next().await? {
            let skipped = usize::try_from(skip).map_or(chunk.len(), |skip| skip.min(chunk.len()));
            skip -= skipped as u64;
            let _ = chunk.split_to(skipped);
            if chunk.is_empty() {
                continue;
            }
            let length = chunk.len() as u64;
            if length > target.size - target.position {
                return Err(Failure::bad(
                    host,
                    format!("a layer of more than its {} bytes", target.size),
                ));
            }
            let began = Instant::now();
            if !(target.sink)(chunk).await {
                return Ok(());
            }
            chunks.excuse(began.elapsed());
            target.position += length;
            if target.position == target.size {
                return Ok(());
            }
        }
        Err(Failure::network(
            host,
            format!("cut off after {} of {} bytes", target.position, target.size),
        ))
    }

    /// How many bytes of the answer we have already.
    fn offset(&self, response: &Response, position: u64, size: u64) -> Tried<u64> {
        let host = &self.endpoint.host;
        let begins = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE);
                let first = range
                    .and_then(|range| range.to_str().ok()?.strip_prefix("bytes ")?.split_once('-'))
                    .and_then(|(first, _)| first.parse::<u64>().ok());
                first.ok_or_else(|| {
                    Failure::bad(host, "a part of a layer that does not say which")
                })?
            }
            // It does not know about parts: then all of it, once more.
            _ => 0,
        };
        if begins > position {
            return Err(Failure::bad(
                host,
                "another part of a layer than was asked for",
            ));
        }
        if let Some(length) = response.content_length()
            && begins.saturating_add(length) != size
        {
            let whole = begins.saturating_add(length);
            return Err(Failure::bad(
                host,
                format!("a layer of {whole} bytes in place of {size}"),
            ));
        }
        Ok(position - begins)
    }
}
