//! Requests for the content of a repository: one host after the other is asked.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::answers::Answers;
use super::body::read_body;
use super::endpoint::Endpoints;
use super::get::GetRequest;
use super::host::Host;
use super::manifests::ManifestAnswer;
use super::notes::Notes;
use super::request::{Attempt, retry};
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::FetchedManifest;
use crate::reference::Reference;

/// A repository of a registry: its hosts and their credentials, for the duration of a pull.
#[derive(Debug)]
pub struct Repository {
    pub(super) name: Reference,
    pub(super) hosts: Vec<Host>,
    /// For layers at other addresses.
    pub(super) endpoints: Arc<Endpoints>,
    pub(crate) notes: Arc<Notes>,
}

impl Repository {
    /// The registry in the reference of the image.
    #[must_use]
    pub fn registry(&self) -> &str {
        self.name.registry()
    }

    /// Fetches the manifest or index of a tag or digest, and checks `expected`.
    ///
    /// # Errors
    ///
    /// The error of the only host, [`Error::AllServersFailed`]; [`Error::WrongDigest`].
    pub async fn manifest(
        &self,
        version: &str,
        expected: Option<&Digest>,
    ) -> Result<FetchedManifest> {
        match self.manifest_unless_known(version, expected, &[]).await? {
            ManifestAnswer::Fetched(fetched) => Ok(fetched),
            ManifestAnswer::Known(digest) => Err(Error::internal(format!("{digest} is not known"))),
        }
    }

    /// As [`Self::manifest`]. If something of the tag or digest is known, only its digest is asked for, with HEAD: registries with a limit
    /// of pulls do not count that. The request has the same credentials, so its answer holds for this caller.
    pub(crate) async fn manifest_unless_known(
        &self,
        version: &str,
        expected: Option<&Digest>,
        known: &[Digest],
    ) -> Result<ManifestAnswer> {
        let answer = self.first_of(expected.is_none(), |host| {
            let path = format!("manifests/{version}");
            async move {
                let url = host.url(&path);
                host.manifest_unless_known(&url, expected, known).await
            }
        });
        answer.await.map_err(|answers| {
            let error = self.error_of(answers, self.name.to_string());
            self.name_missing(error)
        })
    }

    /// Fetches a blob of at most `most` bytes into memory, and checks its digest.
    ///
    /// # Errors
    ///
    /// The error of the only host, [`Error::AllServersFailed`]; [`Error::TooLarge`], [`Error::WrongDigest`].
    pub async fn small_blob(&self, descriptor: &Descriptor, most: u64) -> Result<Vec<u8>> {
        self.small("image configuration", descriptor, most).await
    }

    /// As [`Self::small_blob`]; `kind` is what errors call it.
    pub(crate) async fn small(
        &self,
        kind: &'static str,
        descriptor: &Descriptor,
        most: u64,
    ) -> Result<Vec<u8>> {
        let Descriptor { digest, size, .. } = descriptor;
        if *size > most {
            let what = format!("{kind} {digest}");
            let reason = format!("{size} bytes, at most {most}");
            return Err(Error::too_large(what, reason));
        }
        let fetched = self.first_of(false, |host| async move {
            let url = host.url(&format!("blobs/{digest}"));
            retry(&host.config, host.retries, || async {
                let get = GetRequest {
                    is_checked: true,
                    ..GetRequest::default()
                };
                let response = host.get(&url, get).await?;
                let body =
                    read_body(response, *size, &host.endpoint.host, &host.config.timeouts).await?;
                digest.check(kind, &body)?;
                Ok(body)
            })
            .await
        });
        let fetched = fetched.await;
        fetched.map_err(|answers| self.error_of_blob(answers, digest))
    }

    /// Fetches the index of the referrers of a manifest, of at most `most` bytes.
    pub(crate) async fn referrers(&self, manifest: &Digest, most: u64) -> Result<Vec<u8>> {
        let fetched = self.first_of(true, |host| async move {
            let url = host.url(&format!("referrers/{manifest}"));
            retry(&host.config, host.retries, || async {
                let response = host.get(&url, GetRequest::default()).await?;
                read_body(response, most, &host.endpoint.host, &host.config.timeouts).await
            })
            .await
        });
        let fetched = fetched.await;
        fetched.map_err(|answers| self.error_of(answers, format!("signatures of {manifest}")))
    }

    /// Tries one host after the other.
    async fn first_of<'a, T, F, Fut>(
        &'a self,
        resolve: bool,
        mut attempt: F,
    ) -> std::result::Result<T, Answers>
    where
        F: FnMut(&'a Host) -> Fut,
        Fut: Future<Output = Attempt<T>>,
    {
        let mut answers = Answers::default();
        for host in self.usable_hosts(resolve) {
            match attempt(host).await {
                Ok(value) => return Ok(value),
                Err(failure) => answers.add(&host.endpoint.host, host.failed(failure)),
            }
        }
        Err(answers)
    }

    /// The error of a request that all hosts were asked for in vain.
    fn error_of(&self, answers: Answers, what: String) -> Error {
        answers.into_error(what).unwrap_or_else(|| self.no_host())
    }

    /// Like [`Self::error_of`], if a blob is missing and not the image.
    pub(super) fn error_of_blob(&self, answers: Answers, digest: &Digest) -> Error {
        match self.error_of(answers, format!("blob {digest}")) {
            Error::NotFound { what } => Error::NotFound {
                what: format!("blob {digest}: {what}"),
            },
            other => other,
        }
    }

    /// Returns the hosts with the required capability, unresponsive hosts last.
    pub(super) fn usable_hosts(&self, resolve: bool) -> impl Iterator<Item = &Host> {
        let able = self.hosts.iter().filter(|host| {
            let can = host.endpoint.capabilities;
            if resolve { can.resolve } else { can.pull }
        });
        // Collected here, so that requests do not change the order.
        let (down, up): (Vec<_>, Vec<_>) =
            able.partition(|host| host.is_down.load(Ordering::Relaxed));
        up.into_iter().chain(down)
    }

    fn no_host(&self) -> Error {
        Error::invalid(
            format!("registry {}", self.name.registry()),
            "no host in its hosts.toml may be asked for this",
        )
    }

    fn name_missing(&self, error: Error) -> Error {
        match error {
            Error::NotFound { what } => Error::NotFound {
                what: format!("{}: {what}", self.name),
            },
            other => other,
        }
    }
}
