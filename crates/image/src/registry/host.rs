//! One host of a registry: URLs and retries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use reqwest::Url;

use super::auth::Authorizer;
use super::endpoint::Endpoint;
use super::notes::Notes;
use super::request::Failure;
use super::retries::Retries;
use crate::blocking::lock;
use crate::config::ImageStoreConfig;
use crate::error::Error;
use crate::reference::Reference;

/// One host of the registry: the registry itself or a mirror.
#[derive(Debug)]
pub(super) struct Host {
    /// The repository there.
    pub(super) name: Reference,
    pub(super) endpoint: Endpoint,
    pub(super) authorizer: Authorizer,
    pub(super) redirect_tokens: RedirectTokens,
    pub(super) config: Arc<ImageStoreConfig>,
    pub(super) retries: Retries,
    /// The host did not respond: other hosts are tried first from then on.
    pub(super) is_down: AtomicBool,
    pub(super) notes: Arc<Notes>,
}

impl Host {
    pub(super) fn failed(&self, failure: Failure) -> Error {
        let host = &self.endpoint.host;
        let error = self.config.observer.error_text(&failure.error);
        tracing::debug!(server.address = %host, error.message = %error, "a registry host failed");
        if matches!(failure.error, Error::RegistryUnavailable { .. }) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        failure.error
    }

    /// The registry, or the mirror of it, that the host is.
    pub(super) fn registry(&self) -> &str {
        self.endpoint.registry(&self.name)
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
}

/// Anonymous tokens for the targets of redirects, by origin.
#[derive(Debug, Default)]
pub(super) struct RedirectTokens(Mutex<HashMap<String, Arc<Authorizer>>>);

impl RedirectTokens {
    /// The authorizer of this URL's origin, if that has sent a challenge before.
    pub(super) fn get(&self, url: &Url) -> Option<Arc<Authorizer>> {
        let all = lock(&self.0);
        all.get(&url.origin().ascii_serialization()).cloned()
    }

    /// Like [`Self::get`], created if missing.
    pub(super) fn get_or_insert(
        &self,
        url: &Url,
        make: impl FnOnce() -> Authorizer,
    ) -> Arc<Authorizer> {
        let mut all = lock(&self.0);
        let one = all.entry(url.origin().ascii_serialization());
        Arc::clone(one.or_insert_with(|| Arc::new(make())))
    }
}
