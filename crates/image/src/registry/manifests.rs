//! Requests to one host for manifests.

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use super::body::read_body;
use super::get::GetRequest;
use super::host::Host;
use super::request::{Attempt, Failure, pause, retry};
use super::words::header_text;
use crate::digest::Digest;
use crate::manifest::{ACCEPT, FetchedManifest, MAX_MANIFEST};

/// The header with the digest of a manifest (OCI distribution-spec, "Pulling manifests").
const CONTENT_DIGEST: &str = "docker-content-digest";

/// What a reference resolves to.
#[derive(Debug)]
pub(crate) enum ManifestAnswer {
    /// A digest that the caller knows.
    Known(Digest),
    /// Something else.
    Fetched(FetchedManifest),
}

impl Host {
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
                    let error = self.config.observer.error_text(&failure.error);
                    tracing::debug!(error.message = %error, "HEAD of a manifest failed: asking with GET");
                    let wanted = failure.retry.unwrap_or_default();
                    if failure.is_silence() && !retries.take(wanted) {
                        return Err(failure);
                    }
                    if wanted.after.is_some() {
                        pause(&self.config.timeouts, 0, wanted).await;
                    }
                }
            }
        }
        let fetched = retry(&self.config, retries, || self.manifest(url, expected)).await;
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
        let media_type = header_text(headers, &CONTENT_TYPE);
        let announced = header_text(headers, CONTENT_DIGEST);
        if media_type.starts_with("text/html") {
            let reason = "a web page instead of a manifest";
            return Err(Failure::bad(&self.endpoint.host, reason));
        }
        let bytes = read_body(
            response,
            MAX_MANIFEST,
            &self.endpoint.host,
            &self.config.timeouts,
        )
        .await?;
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
