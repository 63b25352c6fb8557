//! Registry client (OCI distribution-spec 1.1 and its predecessor by Docker): hosts, authentication, manifests, blobs.
//!
//! The client is built on `reqwest`. `oci-client` does not fit: it has one TLS configuration for all hosts, no client certificates,
//! headers or `override_path`, reads manifests of any size into memory, and does not expose status codes and `Retry-After`.

mod auth;
mod blob;
mod challenge;
mod client_certificates;
mod endpoint;
mod foreign;
mod get;
mod given;
mod hosts_file;
mod node_address;
mod plain;
mod registries_conf;
mod request;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

pub use self::blob::BlobPart;
pub use self::client_certificates::ClientCertificate;
pub(crate) use self::client_certificates::client_certificates;

use self::auth::{Authorizer, Identity};
use self::endpoint::{Endpoint, Endpoints};
use self::foreign::ForeignHosts;
use self::get::{GetRequest, RedirectTokens};
use self::given::{given, known_as};
use self::registries_conf::RegistriesConf;
use self::request::{Attempt, Failure, read_body};
use super::config::{ImageStoreConfig, Timeouts};
use super::credentials::Auth;
use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::{ACCEPT, Descriptor, MAX_MANIFEST};
use super::observer::Observer;
use super::progress::lock;
use super::reference::Reference;

/// Parses `hosts.toml`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_hosts_file(text: &str, dir: &std::path::Path) {
    let _ = hosts_file::parse(text, dir);
}

/// Parses `WWW-Authenticate`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_challenge(header: &str) {
    let _ = challenge::parse(header);
}

/// A client for any number of registries. It keeps connections, reads `hosts.toml` and Docker's `config.json` at every
/// [`Self::repository`], and takes timeouts and the observer from an [`ImageStoreConfig`].
#[derive(Debug)]
pub struct RegistryClient {
    endpoints: Arc<Endpoints>,
    registries_conf: Option<PathBuf>,
    /// As last read: short names in queries are resolved without the disk.
    conf: Mutex<Arc<RegistriesConf>>,
    docker_config: Option<PathBuf>,
    client_id: Arc<str>,
    timeouts: Timeouts,
    observer: Arc<dyn Observer>,
}

/// A repository of a registry: its hosts and their credentials, for the duration of a pull.
#[derive(Debug)]
pub struct Repository {
    name: Reference,
    hosts: Vec<Host>,
    foreign: ForeignHosts,
}

/// One host of the registry: the registry itself or a mirror.
#[derive(Debug)]
struct Host {
    /// The repository there.
    name: Reference,
    endpoint: Endpoint,
    authorizer: Authorizer,
    redirect_tokens: RedirectTokens,
    timeouts: Timeouts,
    retries: u32,
    /// The host did not respond: other hosts are tried first from then on.
    is_down: AtomicBool,
    observer: Arc<dyn Observer>,
}

/// A manifest or index as received.
#[derive(Clone, Debug)]
pub struct FetchedManifest {
    /// The document.
    pub bytes: Vec<u8>,
    /// The `Content-Type` of the response.
    pub media_type: String,
    /// The digest of the document.
    pub digest: Digest,
}

impl FetchedManifest {
    /// The descriptor.
    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor {
            media_type: self.media_type.clone(),
            digest: self.digest.clone(),
            size: self.bytes.len() as u64,
            platform: None,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }
}

impl RegistryClient {
    /// Creates a client; nothing is sent or read yet.
    #[must_use]
    pub fn new(config: &ImageStoreConfig) -> Self {
        Self {
            endpoints: Arc::new(Endpoints::new(
                config.certs_dirs.clone(),
                config.timeouts.connect,
                config.user_agent.clone(),
            )),
            registries_conf: config.registries_conf.clone(),
            conf: Mutex::new(Arc::new(
                // A file that cannot be used is reported by the next pull.
                registries_conf::read(config.registries_conf.as_deref()).unwrap_or_default(),
            )),
            client_id: config
                .user_agent
                .split('/')
                .next()
                .unwrap_or_default()
                .into(),
            docker_config: config.docker_config.clone(),
            timeouts: config.timeouts,
            observer: Arc::clone(&config.observer),
        }
    }

    /// The repository of an image. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`], [`Error::Invalid`] and [`Error::Io`] for files that configure the registry.
    pub fn repository(&self, name: &Reference, auth: Option<&Auth>) -> Result<Repository> {
        let sources = self.read_conf()?.sources(name)?;
        let mut endpoints = Vec::new();
        for source in sources {
            let hosts = self.endpoints.of(source.name.registry(), source.insecure)?;
            endpoints.extend(hosts.into_iter().map(|host| (source.clone(), host)));
        }
        let last = endpoints.len().saturating_sub(1);
        let hosts = endpoints.into_iter().enumerate();
        let hosts = hosts.map(|(index, (source, endpoint))| {
            let identity = Identity {
                given: given(name, &source, &endpoint, auth),
                docker_config: self.docker_config.clone(),
                client_id: Arc::clone(&self.client_id),
                registry: known_as(&source.name, &endpoint),
                repository: source.name.repository().to_owned(),
                helper_timeout: self.timeouts.helper,
                stall: self.timeouts.stall,
            };
            Host {
                name: source.name,
                endpoint,
                authorizer: Authorizer::new(identity),
                redirect_tokens: RedirectTokens::default(),
                timeouts: self.timeouts,
                // While there are other hosts to try, this one is not retried for long.
                retries: if index < last {
                    self.timeouts.retries.min(1)
                } else {
                    self.timeouts.retries
                },
                is_down: AtomicBool::new(false),
                observer: Arc::clone(&self.observer),
            }
        });
        Ok(Repository {
            name: name.clone(),
            hosts: hosts.collect(),
            foreign: ForeignHosts(Arc::clone(&self.endpoints)),
        })
    }
}

/// Reads `registries.conf` and the files of its directory. Blocks.
///
/// # Errors
///
/// [`Error::Settings`], [`Error::Io`].
pub(crate) fn check_conf(path: &Path) -> Result<()> {
    registries_conf::read(Some(path)).map(drop)
}

impl RegistryClient {
    /// Reads `registries.conf` again.
    fn read_conf(&self) -> Result<Arc<RegistriesConf>> {
        let conf = Arc::new(registries_conf::read(self.registries_conf.as_deref())?);
        lock(&self.conf).clone_from(&conf);
        Ok(conf)
    }

    /// The full names that an image's name can stand for, in the order in which they are tried.
    pub(crate) fn candidates(&self, text: &str) -> Result<Vec<Reference>> {
        self.read_conf()?.candidates(text)
    }

    /// Like [`Self::candidates`], from the configuration that was read last.
    pub(crate) fn known_candidates(&self, text: &str) -> Result<Vec<Reference>> {
        let conf = Arc::clone(&lock(&self.conf));
        conf.candidates(text)
    }
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
    /// The error of the last host; [`Error::WrongDigest`].
    pub async fn manifest(
        &self,
        version: &str,
        expected: Option<&Digest>,
    ) -> Result<FetchedManifest> {
        self.first_of(expected.is_none(), |host| {
            let path = format!("manifests/{version}");
            async move {
                let url = host.url(&path);
                host.retry(|| host.manifest(&url, expected)).await
            }
        })
        .await
        .map_err(|error| self.name_missing(error))
    }

    /// Fetches a blob of at most `most` bytes into memory, and checks its digest.
    ///
    /// # Errors
    ///
    /// The error of the last host; [`Error::TooLarge`], [`Error::WrongDigest`].
    pub async fn small_blob(&self, descriptor: &Descriptor, most: u64) -> Result<Vec<u8>> {
        self.small("image configuration", descriptor, most).await
    }

    /// Like [`Self::small_blob`]; `kind` is what errors call it.
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
            return Err(Error::TooLarge { what, reason });
        }
        self.first_of(false, |host| async move {
            let url = host.url(&format!("blobs/{digest}"));
            host.retry(|| async {
                let response = host.get(&url, GetRequest::default()).await?;
                let body =
                    read_body(response, *size, &host.endpoint.host, host.timeouts.stall).await?;
                digest.check(kind, &body)?;
                Ok(body)
            })
            .await
        })
        .await
        .map_err(|error| blob::of_blob(digest, error))
    }

    /// Fetches the index of referrers of a manifest, at most `most` bytes.
    pub(crate) async fn referrers(&self, manifest: &Digest, most: u64) -> Result<Vec<u8>> {
        self.first_of(true, |host| async move {
            let url = host.url(&format!("referrers/{manifest}"));
            host.retry(|| async {
                let response = host.get(&url, GetRequest::default()).await?;
                let stall = host.timeouts.stall;
                read_body(response, most, &host.endpoint.host, stall).await
            })
            .await
        })
        .await
    }

    /// Tries one host after the other. The error comes from the last host, the registry itself.
    async fn first_of<'a, T, F, Fut>(&'a self, resolve: bool, mut attempt: F) -> Result<T>
    where
        F: FnMut(&'a Host) -> Fut,
        Fut: Future<Output = Attempt<T>>,
    {
        let mut last = None;
        for host in self.usable_hosts(resolve) {
            match attempt(host).await {
                Ok(value) => return Ok(value),
                Err(failure) => last = Some(host.failed(failure)),
            }
        }
        Err(last.unwrap_or_else(|| self.no_host()))
    }

    /// Returns the hosts with the required capability; the ones that did not respond come last.
    fn usable_hosts(&self, resolve: bool) -> impl Iterator<Item = &Host> {
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
        // Collected here, so that requests do not change the order.
        up.collect::<Vec<_>>()
            .into_iter()
            .chain(others.collect::<Vec<_>>())
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

impl Host {
    fn failed(&self, failure: Failure) -> Error {
        let host = &self.endpoint.host;
        let error = self.observer.error_text(&failure.error);
        tracing::debug!(server.address = %host, error.message = %error, "a registry host failed");
        if matches!(failure.error, Error::RegistryUnavailable { .. }) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        failure.error
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{}/{path}", self.name.repository()));
        if self.endpoint.is_mirror {
            let namespace = self.name.registry();
            url.query_pairs_mut().append_pair("ns", namespace);
        }
        url
    }

    async fn manifest(&self, url: &Url, expected: Option<&Digest>) -> Attempt<FetchedManifest> {
        let get = GetRequest {
            accept: Some(ACCEPT),
            from: 0,
            to: None,
        };
        let response = self.get(url, get).await?;
        let headers = response.headers();
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (media_type, announced) = (text(CONTENT_TYPE.as_str()), text("docker-content-digest"));
        if media_type.starts_with("text/html") {
            let reason = "a web page instead of a manifest";
            return Err(Failure::bad(&self.endpoint.host, reason));
        }
        let bytes = read_body(
            response,
            MAX_MANIFEST,
            &self.endpoint.host,
            self.timeouts.stall,
        )
        .await?;
        // The digest announced by the registry is checked in addition to all other checks.
        let announced = Digest::parse(&announced).ok();
        let digest = match expected.or(announced.as_ref()) {
            Some(digest) => {
                digest.check("manifest", &bytes)?;
                digest.clone()
            }
            None => Digest::of(&bytes),
        };
        Ok(FetchedManifest {
            bytes,
            media_type,
            digest,
        })
    }
}
