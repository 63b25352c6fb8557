//! Registries (OCI distribution-spec 1.1, and Docker's before it): hosts, logging in, manifests, blobs.
//!
//! Written on reqwest. `oci-client` was looked at first and falls short here: one TLS configuration for all hosts, no
//! client certificates, headers or `override_path`, manifests of any size are read into memory, statuses and
//! `Retry-After` are not told, and it needs a second version of the digest crates.

mod ask;
mod auth;
mod blob;
mod challenge;
mod endpoint;
mod hosts_file;
mod request;

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use self::ask::{Ask, Others};
use self::auth::{Authorizer, Identity};
use self::endpoint::{Endpoint, Endpoints};
use self::request::{Failure, Tried, persist, read_body};
use super::config::{ImagesConfig, Patience};
use super::credentials::{Auth, host_of};
use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::{ACCEPT, Descriptor, MAX_MANIFEST};
use super::name::Name;
use crate::runtime::error::shown;

/// Reads `hosts.toml`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_hosts_file(text: &str, dir: &std::path::Path) {
    let _ = hosts_file::parse(text, dir);
}

/// Reads a challenge, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_challenge(header: &str) {
    let _ = challenge::parse(header);
}

/// All registries.
#[derive(Debug)]
pub(super) struct Registries {
    endpoints: Endpoints,
    docker_config: Option<PathBuf>,
    patience: Patience,
}

/// One pull's view of the registry of its image.
#[derive(Debug)]
pub(super) struct Session {
    name: Name,
    hosts: Vec<Host>,
}

/// One host, and how it is talked to.
#[derive(Debug)]
struct Host {
    endpoint: Endpoint,
    authorizer: Authorizer,
    /// Those to whom it leads.
    others: Others,
    patience: Patience,
    retries: u32,
    /// It did not answer: others are asked first from now on.
    is_down: AtomicBool,
}

/// A manifest as it came.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) bytes: Vec<u8>,
    pub(super) media_type: String,
    pub(super) digest: Digest,
}

impl Registries {
    pub(super) fn new(config: &ImagesConfig) -> Self {
        Self {
            endpoints: Endpoints::new(config.certs_dirs.clone(), config.patience.connect),
            docker_config: config.docker_config.clone(),
            patience: config.patience,
        }
    }

    /// Prepares to pull. Nothing is sent yet.
    pub(super) fn session(&self, name: &Name, auth: Option<&Auth>) -> Result<Session> {
        let endpoints = self.endpoints.of(name.registry())?;
        let last = endpoints.len().saturating_sub(1);
        let hosts = endpoints.into_iter().enumerate().map(|(index, endpoint)| {
            let identity = Identity {
                given: given(name, &endpoint, auth),
                docker_config: self.docker_config.clone(),
                registry: known_as(name, &endpoint),
                repository: name.repository().to_owned(),
                helper_patience: self.patience.helper,
                stall: self.patience.stall,
            };
            Host {
                endpoint,
                authorizer: Authorizer::new(identity),
                others: Others::default(),
                patience: self.patience,
                // While there is another to ask, nobody waits long for this one.
                retries: if index < last {
                    self.patience.retries.min(1)
                } else {
                    self.patience.retries
                },
                is_down: AtomicBool::new(false),
            }
        });
        Ok(Session {
            name: name.clone(),
            hosts: hosts.collect(),
        })
    }
}

/// The name under which credentials for a host are kept.
fn known_as(name: &Name, endpoint: &Endpoint) -> String {
    if endpoint.is_mirror {
        endpoint.host.clone()
    } else {
        name.registry().to_owned()
    }
}

/// The request's credentials, if they are for this host. Those for a registry are not shown to its mirrors.
fn given(
    name: &Name,
    endpoint: &Endpoint,
    auth: Option<&Auth>,
) -> Option<super::credentials::Credentials> {
    let auth = auth?;
    let host = known_as(name, endpoint);
    let is_for_it = match &auth.server {
        None => !endpoint.is_mirror,
        Some(server) => *server == host || host_of(&endpoint.host).as_ref() == Some(server),
    };
    is_for_it.then(|| auth.credentials.clone())
}

impl Session {
    /// The registry in the name of the image.
    pub(super) fn registry(&self) -> &str {
        self.name.registry()
    }

    /// The manifest of a tag or digest. What came by digest has been checked.
    pub(super) async fn manifest(
        &self,
        version: &str,
        expected: Option<&Digest>,
    ) -> Result<Fetched> {
        self.first_of(expected.is_none(), |host| {
            let path = format!("manifests/{version}");
            async move {
                let url = host.url(&self.name, &path);
                persist(&host.patience, host.retries, || {
                    host.manifest(&url, expected)
                })
                .await
            }
        })
        .await
        .map_err(|error| self.name_missing(error))
    }

    /// A blob that must be small, checked.
    pub(super) async fn small_blob(&self, descriptor: &Descriptor, most: u64) -> Result<Vec<u8>> {
        let Descriptor { digest, size, .. } = descriptor;
        if *size > most {
            let what = format!("image configuration {digest}");
            let reason = format!("{size} bytes, at most {most}");
            return Err(Error::TooLarge { what, reason });
        }
        self.first_of(false, |host| async move {
            let url = host.url(&self.name, &format!("blobs/{digest}"));
            persist(&host.patience, host.retries, || async {
                let response = host.ask(&url, Ask::default()).await?;
                let body =
                    read_body(response, *size, &host.endpoint.host, host.patience.stall).await?;
                digest.check("image configuration", &body)?;
                Ok(body)
            })
            .await
        })
        .await
    }

    /// Asks one host after the other. The error is that of the last, which is the registry itself.
    async fn first_of<'a, T, F, Fut>(&'a self, resolve: bool, mut attempt: F) -> Result<T>
    where
        F: FnMut(&'a Host) -> Fut,
        Fut: Future<Output = Tried<T>>,
    {
        let mut last = None;
        for host in self.able(resolve) {
            match attempt(host).await {
                Ok(value) => return Ok(value),
                Err(failure) => last = Some(host.failed(failure)),
            }
        }
        Err(last.unwrap_or_else(|| self.nobody()))
    }

    /// Hosts that may be asked; those that did not answer come last.
    fn able(&self, resolve: bool) -> impl Iterator<Item = &Host> {
        let able = move |host: &&Host| {
            let can = host.endpoint.capabilities;
            if resolve { can.resolve } else { can.pull }
        };
        let down = |host: &&Host| host.is_down.load(Ordering::Relaxed);
        let up = self
            .hosts
            .iter()
            .filter(move |host| able(host) && !down(host));
        let others = self
            .hosts
            .iter()
            .filter(move |host| able(host) && down(host));
        // Decided now: while one is asked, nothing else changes the order.
        up.collect::<Vec<_>>()
            .into_iter()
            .chain(others.collect::<Vec<_>>())
    }

    fn nobody(&self) -> Error {
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

impl Host {
    fn failed(&self, failure: Failure) -> Error {
        let host = &self.endpoint.host;
        tracing::debug!(%host, error = %shown(&failure.error), "a registry host failed");
        if matches!(failure.error, Error::RegistryUnavailable { .. }) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        failure.error
    }

    fn url(&self, name: &Name, path: &str) -> Url {
        let mut url = self.endpoint.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{}/{path}", name.repository()));
        if self.endpoint.is_mirror {
            let namespace = name.registry();
            url.query_pairs_mut().append_pair("ns", namespace);
        }
        url
    }

    async fn manifest(&self, url: &Url, expected: Option<&Digest>) -> Tried<Fetched> {
        let ask = Ask {
            accept: Some(ACCEPT),
            from: 0,
        };
        let response = self.ask(url, ask).await?;
        let headers = response.headers();
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (media_type, promised) = (text(CONTENT_TYPE.as_str()), text("docker-content-digest"));
        let bytes = read_body(
            response,
            MAX_MANIFEST,
            &self.endpoint.host,
            self.patience.stall,
        )
        .await?;
        // A promise is checked, too; it is no reason to believe anything.
        let promised = Digest::parse(&promised).ok();
        let digest = match expected.or(promised.as_ref()) {
            Some(digest) => {
                digest.check("manifest", &bytes)?;
                digest.clone()
            }
            None => Digest::of(&bytes),
        };
        Ok(Fetched {
            bytes,
            media_type,
            digest,
        })
    }
}
