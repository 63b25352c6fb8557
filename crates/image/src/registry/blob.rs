//! Download of a blob: resumed for as long as it makes progress, then retried from the next host.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use reqwest::header::{ACCEPT_RANGES, CONTENT_RANGE};
use reqwest::{Response, StatusCode, Url};
use tokio::time::Instant;

use super::answers::Answers;
use super::body::Chunks;
use super::get::GetRequest;
use super::host::Host;
use super::repository::Repository;
use super::request::{Attempt, Failure, pause};
use super::retries::Retries;
use crate::descriptor::Descriptor;
use crate::error::Result;

/// Progress that resets the count of retries: a connection that breaks occasionally does not mean a dead registry.
const WORTH_IT: u64 = 1 << 20;

/// The part of a blob that is wanted.
#[derive(Debug)]
pub struct BlobPart<'a> {
    /// The offsets. If it ends before the blob, the server must know parts.
    pub range: Range<u64>,
    /// Set when a server says that it knows parts.
    pub sends_parts: &'a AtomicBool,
    /// Whether another connection fetches the same blob, and waits for this one: one server is asked, and silence is not waited for twice.
    pub is_further: bool,
}

/// Where the bytes go. The sink returns `false` to stop.
pub(super) struct Target<'a, S> {
    size: u64,
    position: u64,
    /// The offset after the last byte.
    end: u64,
    sends_parts: &'a AtomicBool,
    sink: &'a mut S,
}

impl Repository {
    /// Registry and repository in the reference of the image.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.name.registry(), self.name.repository())
    }

    /// Passes every byte of a part to the sink, with its offset, in order and no more than that. The caller checks the digest.
    ///
    /// # Errors
    ///
    /// The error of the only host, [`Error::AllServersFailed`](crate::Error::AllServersFailed).
    pub async fn blob<S, F>(
        &self,
        descriptor: &Descriptor,
        part: &BlobPart<'_>,
        mut sink: S,
    ) -> Result<()>
    where
        S: FnMut(u64, Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let mut target = Target {
            size: descriptor.size,
            position: part.range.start,
            end: part.range.end.min(descriptor.size),
            sends_parts: part.sends_parts,
            sink: &mut sink,
        };
        let mut answers = Answers::default();
        for host in self.usable_hosts(false) {
            let url = host.url(&format!("blobs/{}", descriptor.digest));
            let mut retries = host.retries;
            if part.is_further {
                retries = retries.without_silence();
            }
            match host.blob(&url, &mut target, retries).await {
                Ok(()) => return Ok(()),
                Err(failure) => answers.add(&host.endpoint.host, host.failed(failure)),
            }
            if part.is_further {
                break;
            }
        }
        let error = self.error_of_blob(answers, &descriptor.digest);
        let has_addresses = !descriptor.urls.is_empty() && !part.is_further;
        if has_addresses && error.is_not_found() {
            return self.foreign_blob(descriptor, &mut target, error).await;
        }
        Err(error)
    }
}

impl Host {
    /// Fetches from this host, and goes on where it broke off. Each megabyte of progress allows all retries again.
    pub(super) async fn blob<S, F>(
        &self,
        url: &Url,
        target: &mut Target<'_, S>,
        retries: Retries,
    ) -> Attempt<()>
    where
        S: FnMut(u64, Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let (mut left, mut tries) = (retries, 0);
        let mut mark = target.position;
        while target.position < target.end {
            let Err(failure) = self.stream(url, target).await else {
                return Ok(());
            };
            if target.position - mark >= WORTH_IT {
                (left, tries, mark) = (retries, 0, target.position);
            }
            let retry = failure.retry.filter(|retry| left.take(*retry));
            let Some(retry) = retry else {
                return Err(failure);
            };
            let error = self.config.observer.error_text(&failure.error);
            tracing::debug!(error.message = %error, position = target.position, "resuming the download of a layer");
            pause(&self.config.timeouts, tries, retry).await;
            tries += 1;
        }
        Ok(())
    }

    /// Sends one request. It succeeds only if the part is complete or the sink wants no more.
    async fn stream<S, F>(&self, url: &Url, target: &mut Target<'_, S>) -> Attempt<()>
    where
        S: FnMut(u64, Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let get = GetRequest {
            from: target.position,
            to: (target.end < target.size).then_some(target.end),
            is_checked: true,
            ..GetRequest::default()
        };
        let response = self.get(url, get).await?;
        let mut skip = self.offset(&response, target)?;
        let host = &self.endpoint.host;
        let mut chunks = Chunks::new(response, host.clone(), &self.config.timeouts);
        while let Some(mut chunk) = chunks.next().await? {
            let skipped = usize::try_from(skip).map_or(chunk.len(), |skip| skip.min(chunk.len()));
            skip -= skipped as u64;
            let _ = chunk.split_to(skipped);
            if chunk.is_empty() {
                continue;
            }
            let length = chunk.len() as u64;
            if length > target.end - target.position {
                return Err(Failure::bad(
                    host,
                    format!("a layer of more than its {} bytes", target.end),
                ));
            }
            let began = Instant::now();
            if !(target.sink)(target.position, chunk).await {
                return Ok(());
            }
            chunks.excuse(began.elapsed());
            target.position += length;
            if target.position == target.end {
                return Ok(());
            }
        }
        Err(Failure::network(
            host,
            format!("cut off after {} of {} bytes", target.position, target.end),
        ))
    }

    /// Returns the number of bytes at the beginning of the response that are already present.
    fn offset<S>(&self, response: &Response, target: &Target<'_, S>) -> Attempt<u64> {
        let host = &self.endpoint.host;
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        let accepts = response.headers().get(ACCEPT_RANGES);
        if is_part || accepts.is_some_and(|units| units == "bytes") {
            target.sends_parts.store(true, Ordering::Relaxed);
        }
        let begins = if is_part {
            let range = response.headers().get(CONTENT_RANGE);
            let first = range
                .and_then(|range| range.to_str().ok()?.strip_prefix("bytes ")?.split_once('-'))
                .and_then(|(first, _)| first.parse::<u64>().ok());
            first.ok_or_else(|| Failure::bad(host, "a part of a layer that does not say which"))?
        } else if target.end < target.size {
            return Err(Failure::bad(host, "a layer in place of a part of it"));
        } else {
            // The server does not support ranges: it sends the whole blob.
            0
        };
        if begins > target.position {
            return Err(Failure::bad(
                host,
                "another part of a layer than was asked for",
            ));
        }
        if let Some(length) = response.content_length()
            && begins.saturating_add(length) != target.end
        {
            let whole = begins.saturating_add(length);
            return Err(Failure::bad(
                host,
                format!("a layer of {whole} bytes in place of {}", target.end),
            ));
        }
        Ok(target.position - begins)
    }
}
