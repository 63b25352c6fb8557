//! The client: which hosts a repository has, and which credentials each of them gets.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::auth::Authorizer;
use super::endpoint::{Endpoint, Endpoints};
use super::host::{Host, RedirectTokens};
use super::notes::Notes;
use super::registries_conf::{self, RegistriesConf, Source};
use super::repository::Repository;
use super::retries::Retries;
use crate::blocking::lock;
use crate::config::ImageStoreConfig;
use crate::credentials::{Auth, Credentials, host_of};
use crate::error::Result;
use crate::reference::Reference;

/// A client for any number of registries. It keeps connections, reads `hosts.toml` and Docker's `config.json` at every
/// [`Self::repository`], and takes timeouts and the observer from an [`ImageStoreConfig`].
#[derive(Debug)]
pub struct RegistryClient {
    pub(super) config: Arc<ImageStoreConfig>,
    pub(super) endpoints: Arc<Endpoints>,
    /// As last read: short names in queries are resolved without the disk.
    conf: Mutex<Arc<RegistriesConf>>,
}

impl RegistryClient {
    /// Creates a client; nothing is sent or read yet.
    #[must_use]
    pub fn new(config: Arc<ImageStoreConfig>) -> Self {
        // A file that cannot be used is reported by the next pull.
        let conf = registries_conf::read(config.registries_conf.as_deref()).unwrap_or_default();
        Self {
            endpoints: Arc::new(Endpoints::new(Arc::clone(&config))),
            conf: Mutex::new(Arc::new(conf)),
            config,
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
            let authorizer = Authorizer::new(
                Arc::clone(&self.config),
                given(name, &source, &endpoint, auth),
                Some(endpoint.registry(&source.name).to_owned()),
                source.name.repository().to_owned(),
            );
            Host {
                name: source.name,
                endpoint,
                authorizer,
                redirect_tokens: RedirectTokens::default(),
                config: Arc::clone(&self.config),
                retries: Retries::new(self.config.timeouts.retries, index < last),
                is_down: AtomicBool::new(false),
                notes: Arc::clone(&notes),
            }
        });
        Ok(Repository {
            name: name.clone(),
            hosts: hosts.collect(),
            notes,
            endpoints: Arc::clone(&self.endpoints),
        })
    }

    /// Reads `registries.conf` again.
    fn read_conf(&self) -> Result<Arc<RegistriesConf>> {
        let conf = Arc::new(registries_conf::read(
            self.config.registries_conf.as_deref(),
        )?);
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

/// Reads `registries.conf` and the files of its directory. Blocks.
///
/// # Errors
///
/// [`crate::Error::Settings`], [`crate::Error::Io`].
pub(crate) fn check_conf(path: &Path) -> Result<()> {
    registries_conf::read(Some(path)).map(drop)
}

/// The credentials of the request, if they are for this host. Those of a registry are sent to what takes its place, and not to
/// its mirrors.
fn given(
    name: &Reference,
    source: &Source,
    endpoint: &Endpoint,
    auth: Option<&Auth>,
) -> Option<Credentials> {
    let auth = auth?;
    let host = endpoint.registry(&source.name);
    let is_registry = source.is_primary && !endpoint.is_mirror;
    let is_for_it = match &auth.server {
        None => is_registry,
        Some(server) => {
            let is_host = server == host || host_of(&endpoint.host).as_ref() == Some(server);
            is_host || (is_registry && server == name.registry())
        }
    };
    is_for_it.then(|| auth.credentials.clone())
}
