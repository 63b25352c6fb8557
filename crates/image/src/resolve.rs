//! From a reference to the manifest for this platform.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::blocking::blocking;
use super::choice::{Choice, MAX_UNDECLARED, choose, no_platform};
use super::descriptor::Descriptor;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::ParsedConfig;
use super::image_store::ImageStore;
use super::manifest::{FetchedManifest, MAX_CONFIG, MAX_DEPTH, Manifest};
use super::platform::Fit;
use super::reference::Reference;
use super::registry::{ManifestAnswer, Repository};

/// The manifest of the image that a reference resolves to.
pub(super) struct Resolved {
    /// Not an index.
    pub(super) content: Manifest,
    /// The manifest for this platform, as received.
    pub(super) fetched: FetchedManifest,
    /// The target of the reference: the manifest, or an index that leads to it.
    pub(super) top: Descriptor,
    /// The configuration, if it need not be fetched.
    pub(super) config: Option<Vec<u8>>,
}

/// A reference that is being resolved.
struct Resolution<'a> {
    store: &'a ImageStore,
    repository: &'a Repository,
    what: String,
    /// The manifests that may still be tried, over all indexes.
    tries_left: AtomicUsize,
}

impl ImageStore {
    /// Fetches the manifest for this platform. As in containerd, an index chooses by the platforms in it, and by those in the
    /// configurations where it has none; a manifest that was asked for is taken regardless of its platform.
    pub(super) async fn resolve_remote(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<Resolved> {
        let (version, digest) = (reference.version(), reference.digest());
        let known = self.store.known_digests(reference, &self.config.platform);
        let answer = repository.manifest_unless_known(version, digest, &known);
        let fetched = match answer.await? {
            ManifestAnswer::Fetched(fetched) => fetched,
            ManifestAnswer::Known(known) => match self.resolve_stored(reference, known).await? {
                Some(resolved) => return Ok(resolved),
                None => repository.manifest(version, digest).await?,
            },
        };
        let top = fetched.descriptor();
        let resolution = Resolution {
            store: self,
            repository,
            what: reference.to_string(),
            tries_left: AtomicUsize::new(MAX_UNDECLARED),
        };
        let (content, fetched) = resolution.descend(fetched, MAX_DEPTH - 1).await?;
        Ok(Resolved {
            content,
            fetched,
            top,
            config: None,
        })
    }

    /// The image that a known digest resolves to. `None` if it has been removed since, or its documents are damaged: then it is fetched.
    async fn resolve_stored(
        &self,
        reference: &Reference,
        digest: Digest,
    ) -> Result<Option<Resolved>> {
        let (store, reference) = (Arc::clone(&self.store), reference.clone());
        let platform = self.config.platform.clone();
        let read = blocking(move || store.stored_image(&reference, &digest, &platform)).await;
        let stored = match read {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = self.config.observer.error_text(&error);
                tracing::warn!(error.message = %error, "a document of the image store is damaged: fetching it again");
                return Ok(None);
            }
        };
        let content = Manifest::parse(&stored.manifest.bytes, &stored.manifest.media_type)?;
        if matches!(content, Manifest::Index(_)) {
            return Ok(None);
        }
        Ok(Some(Resolved {
            content,
            fetched: stored.manifest,
            top: stored.top,
            config: Some(stored.config),
        }))
    }
}

impl Resolution<'_> {
    /// Follows indexes to a manifest.
    fn descend(
        &self,
        fetched: FetchedManifest,
        depth: usize,
    ) -> BoxFuture<'_, Result<(Manifest, FetchedManifest)>> {
        Box::pin(async move {
            let manifests = match Manifest::parse(&fetched.bytes, &fetched.media_type)? {
                Manifest::Index(manifests) => manifests,
                content => return Ok((content, fetched)),
            };
            let Some(depth) = depth.checked_sub(1) else {
                let reason = "an index of indexes without end";
                return Err(Error::invalid(self.what.clone(), reason));
            };
            match choose(&self.what, &manifests, &self.store.config.platform)? {
                Choice::Declared(chosen) => self.fetch(chosen, depth).await,
                Choice::Undeclared(tried) => match tried.as_slice() {
                    [only] => self.fetch(only, depth).await,
                    _ => self.first_that_runs(&manifests, &tried, depth).await,
                },
            }
        })
    }

    async fn fetch(
        &self,
        chosen: &Descriptor,
        depth: usize,
    ) -> Result<(Manifest, FetchedManifest)> {
        let digest = &chosen.digest;
        let fetched = self
            .repository
            .manifest(digest.as_str(), Some(digest))
            .await?;
        self.descend(fetched, depth).await
    }

    /// Tries manifests in their order: the first whose configuration names this platform, else the first that names none.
    async fn first_that_runs(
        &self,
        manifests: &[Descriptor],
        tried: &[&Descriptor],
        depth: usize,
    ) -> Result<(Manifest, FetchedManifest)> {
        let mut silent = None;
        for descriptor in tried {
            let left = self.tries_left.load(Ordering::Relaxed);
            let Some(left) = left.checked_sub(1) else {
                break;
            };
            self.tries_left.store(left, Ordering::Relaxed);
            let found = match self.fetch(descriptor, depth).await {
                // An index in this one that has nothing for this platform.
                Err(Error::NoPlatform { .. }) => continue,
                found => found?,
            };
            match self.fit(&found.0).await? {
                Fit::Runs => return Ok(found),
                Fit::Silent => drop(silent.get_or_insert(found)),
                Fit::Other => {}
            }
        }
        silent.ok_or_else(|| no_platform(&self.what, manifests, &self.store.config.platform))
    }

    async fn fit(&self, content: &Manifest) -> Result<Fit> {
        let config = match content {
            Manifest::Image(image) => &image.config,
            Manifest::Undeclared(manifest) => &manifest.config,
            Manifest::Artifact(_) | Manifest::Index(_) => return Ok(Fit::Silent),
        };
        let bytes = self.repository.small_blob(config, MAX_CONFIG).await?;
        Ok(match ParsedConfig::read(&bytes) {
            Ok(parsed) => parsed.fit(&self.store.config.platform),
            Err(_) => Fit::Silent,
        })
    }
}
