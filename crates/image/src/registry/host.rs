//! One host of a registry: URLs, and requests for manifests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::auth::Authorizer;
use super::body::read_body;
use super::endpoint::Endpoint;
use super::get::{GetRequest, RedirectTokens};
use super::notes::Notes;
use super::request::{Attempt, Failure, pause};
use super::retries::Retries;
use super::{FetchedManifest, ManifestAnswer};
use crate::config::Timeouts;
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{ACCEPT, MAX_MANIFEST};
use crate::observer::Observer;
use crate::reference::Reference;

/// The header with the digest of a manifest (OCI distribution-spec, "Pulling manifests").
const CONTENT_DIGEST: &str = "docker-content-digest";

/// One host of the registry: the registry itself or a mirror.
#[derive(Debug)]
pub(super) struct Host {
    /// The repository there.
    pub(super) name: Reference,
    pub(super) endpoint: Endpoint,
    pub(super) authorizer: Authorizer,
    pub(super) redirect_tokens: RedirectTokens,
    pub(super) timeouts: Timeouts,
    pub(super) retries: Retries,
    /// The host did not respond: other hosts are tried first from then on.
    pub(super) is_down: AtomicBool,
    pub(super) notes: Arc<Notes>,
    pub(super) observer: Arc<dyn Observer>,
}

impl Host {
    pub(super) fn failed(&self, failure: Failure) -> Error {
        let host = &self.endpoint.host;
        let error = self.observer.error_text(&failure.error);
        tracing::debug!(server.address = %host, error.message = %error, "a registry host failed");
        if matches!(failure.error, Error::RegistryUnavailable { .. }) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        failure.error
    }

    /// The registry, or the mirror of it, that the host is.
    pub(super) fn registry(&self) -> &str {
        if self.endpoint.is_mirror {
            return &self.endpoint.host;
        }
        self.name.registry()
    }

    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{}/{path}", self.name.repository()));
        if self.endpoint.is_mirror {
            let namespace = self.name.registry();
            url.query_pairs_mut().append_pair("ns", namespace);
        }
        url
    }

    /// Asks with HEAD if any digest is known. Not every server answers HEAD correctly, so GET decides after a failure.
    pub(super) async fn manifest_unless_known(
        &self,
        url: &Url,
        expected: Option<&Digest>,
        known: &[Digest],
    ) -> Attempt<ManifestAnswer> {
        let mut retries = self.retries;
        if !known.is_empty() {
            match self.digest_of(url).await {
                Ok(Some(digest)) if known.contains(&digest) => {
                    return Ok(ManifestAnswer::Known(digest));
                }
                Ok(_) => {}
                Err(failure) => {
                    let error = self.observer.error_text(&failure.error);
                    tracing::debug!(error.message = %error, "HEAD of a manifest failed: asking with GET");
                    let retry = failure.retry.unwrap_or_default();
                    if failure.is_silence() && !retries.take(retry) {
                        return Err(failure);
                    }
                    if retry.after.is_some() {
                        pause(&self.timeouts, 0, retry).await;
                    }
                }
            }
        }
        let fetched = self.retry(retries, || self.manifest(url, expected)).await;
        fetched.map(ManifestAnswer::Fetched)
    }

    /// Asks for the digest of a manifest. `None` if the answer has none, or several.
    async fn digest_of(&self, url: &Url) -> Attempt<Option<Digest>> {
        let get = GetRequest {
            accept: Some(ACCEPT),
            is_head: true,
            ..GetRequest::default()
        };
        let response = self.get(url, get).await?;
        let mut digests = response.headers().get_all(CONTENT_DIGEST).iter();
        let first = digests
            .next()
            .filter(|first| digests.all(|other| other == first));
        let text = first.and_then(|first| first.to_str().ok());
        Ok(text.and_then(|text| Digest::parse(text.trim()).ok()))
    }

    pub(super) async fn manifest(
        &self,
        url: &Url,
        expected: Option<&Digest>,
    ) -> Attempt<FetchedManifest> {
        let get = GetRequest {
            accept: Some(ACCEPT),
            is_checked: expected.is_some(),
            ..GetRequest::default()
        };
        let response = self.get(url, get).await?;
        let headers = response.headers();
        let media_type = header_text(headers, CONTENT_TYPE.as_str());
        let announced = header_text(headers, CONTENT_DIGEST);
        if media_type.starts_with("text/html") {
            let reason = "a web page instead of a manifest";
            return Err(Failure::bad(&self.endpoint.host, reason));
        }
        let bytes = read_body(response, MAX_MANIFEST, &self.endpoint.host, &self.timeouts).await?;
        // The digest announced by the registry is checked in addition to all other checks.
        let announced = Digest::parse(&announced).ok();
        let digest = match expected.or(announced.as_ref()) {
            Some(digest) => {
                digest.check("manifest", &bytes)?;
                digest.clone()
            }
            None => Digest::sha256(&bytes),
        };
        Ok(FetchedManifest {
            bytes,
            media_type,
            digest,
        })
    }
}

fn header_text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
