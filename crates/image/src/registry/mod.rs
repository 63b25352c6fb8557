//! Registry client (OCI distribution-spec 1.1 and its predecessor by Docker): hosts, authentication, manifests, blobs.
//!
//! The client is built on `reqwest`. `oci-client` does not fit: it has one TLS configuration for all hosts, no client certificates,
//! headers or `override_path`, reads manifests of any size into memory, and does not expose status codes and `Retry-After`.

mod answers;
mod auth;
mod blob;
mod body;
mod challenge;
mod client_certificates;
mod endpoint;
mod foreign;
mod get;
mod given;
mod host;
mod hosts_file;
mod node_address;
mod notes;
mod plain;
mod rate_limit;
mod redirect;
mod refusal;
mod registries_conf;
mod repository;
mod request;
mod retries;
mod secrets;
mod warning;
mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub(crate) use self::answers::Answers;
pub use self::blob::BlobPart;
pub use self::client_certificates::ClientCertificate;
pub(crate) use self::client_certificates::client_certificates;
pub use self::rate_limit::RateLimit;

use self::auth::{Authorizer, Identity};
use self::endpoint::Endpoints;
use self::foreign::ForeignHosts;
use self::get::RedirectTokens;
use self::given::{given, known_as};
use self::host::Host;
use self::notes::Notes;
use self::registries_conf::RegistriesConf;
use self::retries::Retries;
use super::config::{ImageStoreConfig, Timeouts};
use super::credentials::Auth;
use super::digest::Digest;
use super::error::Result;
use super::manifest::Descriptor;
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
    pub(crate) notes: Arc<Notes>,
}

/// What a reference resolves to.
#[derive(Debug)]
pub(crate) enum ManifestAnswer {
    /// A digest that the caller knows.
    Known(Digest),
    /// Something else.
    Fetched(FetchedManifest),
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
            size: self.bytes.len() as u64,
            ..Descriptor::from_digest(self.digest.clone())
        }
    }
}

impl RegistryClient {
    /// Creates a client; nothing is sent or read yet.
    #[must_use]
    pub fn new(config: &ImageStoreConfig) -> Self {
        Self {
            endpoints: Arc::new(Endpoints::new(config)),
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
    /// [`crate::Error::Settings`], [`crate::Error::Invalid`] and [`crate::Error::Io`] for files that configure the registry.
    pub fn repository(&self, name: &Reference, auth: Option<&Auth>) -> Result<Repository> {
        let sources = self.read_conf()?.sources(name)?;
        let mut endpoints = Vec::new();
        for source in sources {
            let hosts = self
                .endpoints
                .for_registry(source.name.registry(), source.insecure)?;
            endpoints.extend(hosts.into_iter().map(|host| (source.clone(), host)));
        }
        let last = endpoints.len().saturating_sub(1);
        let notes = Arc::new(Notes::default());
        let hosts = endpoints.into_iter().enumerate();
        let hosts = hosts.map(|(index, (source, endpoint))| {
            let identity = Identity {
                given: given(name, &source, &endpoint, auth),
                docker_config: self.docker_config.clone(),
                client_id: Arc::clone(&self.client_id),
                registry: known_as(&source.name, &endpoint),
                repository: source.name.repository().to_owned(),
                timeouts: self.timeouts,
                observer: Arc::clone(&self.observer),
            };
            Host {
                name: source.name,
                endpoint,
                authorizer: Authorizer::new(identity),
                redirect_tokens: RedirectTokens::default(),
                timeouts: self.timeouts,
                retries: Retries::new(self.timeouts.retries, index < last),
                is_down: AtomicBool::new(false),
                notes: Arc::clone(&notes),
                observer: Arc::clone(&self.observer),
            }
        });
        Ok(Repository {
            name: name.clone(),
            hosts: hosts.collect(),
            notes,
            foreign: ForeignHosts(Arc::clone(&self.endpoints)),
        })
    }
}

/// Reads `registries.conf` and the files of its directory. Blocks.
///
/// # Errors
///
/// [`crate::Error::Settings`], [`crate::Error::Io`].
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
