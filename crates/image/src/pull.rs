//! Pulls: from a reference to the record of an image.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;

use super::config::Failpoint;
use super::credentials::Auth;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::ParsedConfig;
use super::layer::{LayerSource, PendingLayer, blocking};
use super::manifest::{Descriptor, ImageManifest, MAX_CONFIG, MAX_DEPTH, Manifest, choose};
use super::observer::{ObservedPull, Outcome, Step, Steps, observed};
use super::progress::{PullGuard, PullPhase};
use super::reference::Reference;
use super::registry::{FetchedManifest, Repository};
use super::store::{Held, NewImage, Record};
use super::verify::{Evidence, Subject};
use super::{ImageId, ImageStore};

/// The manifest of the image that a reference resolves to.
struct Resolved {
    manifest: ImageManifest,
    /// The manifest for this platform, as received.
    fetched: FetchedManifest,
    /// What the reference resolves to: the manifest, or an index that leads to it.
    top: Descriptor,
}

/// An image that may be fetched.
struct Verified {
    resolved: Resolved,
    evidence: Vec<Evidence>,
    config: Vec<u8>,
    parsed: ParsedConfig,
}

/// Whom and what a pull is for.
#[derive(Clone, Debug, Default)]
pub struct PullOptions {
    /// Credentials.
    pub auth: Option<Auth>,
    /// When it fails.
    pub deadline: Option<Instant>,
    /// The Kubernetes namespace whose signature policy applies.
    pub namespace: Option<String>,
}

impl ImageStore {
    /// Pulls an image, fetching only its missing layers, and returns its ID. Dropping the future cancels the pull; blobs
    /// fetched so far are kept for [`ImageStoreConfig::keep_unused`](super::ImageStoreConfig::keep_unused).
    ///
    /// # Errors
    ///
    /// [`Error::DeadlineExceeded`] at the deadline, or any other [`Error`].
    pub async fn pull(
        &self,
        reference: &str,
        auth: Option<Auth>,
        deadline: Option<Instant>,
    ) -> Result<ImageId> {
        let options = PullOptions {
            auth,
            deadline,
            ..PullOptions::default()
        };
        self.pull_with(reference, &options).await
    }

    /// As [`Self::pull`], with more options.
    ///
    /// # Errors
    ///
    /// As [`Self::pull`].
    pub async fn pull_with(&self, reference: &str, options: &PullOptions) -> Result<ImageId> {
        let candidates = self.registries.candidates(reference)?;
        let observed = ObservedPull::start(&self.config.observer);
        let mut result = Err(Error::internal("a name that stands for nothing"));
        for candidate in &candidates {
            result = self.pull_until(candidate, options).await;
            // The deadline is that of all together.
            if matches!(&result, Ok(_) | Err(Error::DeadlineExceeded { .. })) {
                break;
            }
        }
        observed.end(&result);
        result
    }

    async fn pull_until(&self, reference: &Reference, options: &PullOptions) -> Result<ImageId> {
        let pull = self.pull_reference(reference, options);
        let Some(deadline) = options.deadline else {
            return pull.await;
        };
        let result = tokio::time::timeout_at(deadline.into(), pull).await;
        result.unwrap_or_else(|_| {
            Err(Error::DeadlineExceeded {
                reference: reference.to_string(),
            })
        })
    }

    async fn pull_reference(
        &self,
        reference: &Reference,
        options: &PullOptions,
    ) -> Result<ImageId> {
        let progress = self.pulls.begin(reference.to_string());
        let repository = self
            .registries
            .repository(reference, options.auth.as_ref())?;
        let repository = Arc::new(repository);
        let steps = self.config.observer.operation();
        let active = steps.start(Step::Resolve, None);
        let inner = active.steps();
        let verified = self.resolve_and_verify(&repository, reference, options, &inner);
        let verified = verified.await;
        active.end(Outcome::of(&verified));
        let Verified {
            resolved,
            evidence,
            config,
            parsed,
        } = verified?;
        let Resolved {
            manifest,
            fetched,
            top,
        } = resolved;
        self.config.failpoint.reached(Failpoint::Resolved);
        let layers = manifest.layers.into_iter();
        let sources = layers.map(|layer| LayerSource::Registry(Arc::clone(&repository), layer));
        let layers: Vec<_> = parsed.diff_ids.into_iter().zip(sources).collect();
        let held = self.get_layers(layers, &progress, &steps).await?;
        progress.enter(PullPhase::Recording);
        let mut record = Record::new(manifest.config.digest, held.layers.clone());
        record.add_reference(&reference.at(top.digest));
        if reference.tag().is_some() {
            record.add_reference(reference);
        }
        record.manifest = Some(fetched.digest.clone());
        let mut contents = vec![(fetched.digest, fetched.bytes)];
        for found in evidence {
            let (digest, document) = found.document()?;
            record.evidence.push(digest.clone());
            contents.push((digest, document));
        }
        let new = NewImage {
            record,
            config,
            contents,
        };
        self.record(new, held, &steps).await
    }

    /// Fetches manifest and configuration. Nothing but manifests and signatures is fetched of an image that is refused.
    async fn resolve_and_verify(
        &self,
        repository: &Repository,
        reference: &Reference,
        options: &PullOptions,
        steps: &Arc<dyn Steps>,
    ) -> Result<Verified> {
        let resolved = self.resolve_remote(repository, reference).await?;
        let subject = Subject {
            reference,
            top: &resolved.top,
            manifest: &resolved.fetched.digest,
            namespace: options.namespace.as_deref(),
        };
        let evidence = self.verify(repository, &subject, steps).await?;
        let manifest = &resolved.manifest;
        let config = repository.small_blob(&manifest.config, MAX_CONFIG).await?;
        let parsed = ParsedConfig::read(&config)?;
        let layers = manifest.layers.len();
        parsed.check(&reference.to_string(), layers, &self.config.platform)?;
        Ok(Verified {
            resolved,
            evidence,
            config,
            parsed,
        })
    }

    /// Fetches the manifest for this platform.
    async fn resolve_remote(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<Resolved> {
        let what = reference.to_string();
        let mut fetched = repository
            .manifest(reference.version(), reference.digest())
            .await?;
        let top = fetched.descriptor();
        for _ in 0..MAX_DEPTH {
            let manifests = match Manifest::parse(&fetched.bytes, &fetched.media_type)? {
                Manifest::Index(manifests) => manifests,
                Manifest::Image(manifest) => {
                    return Ok(Resolved {
                        manifest,
                        fetched,
                        top,
                    });
                }
            };
            let chosen = choose(&what, &manifests, &self.config.platform)?;
            fetched = repository
                .manifest(chosen.digest.as_str(), Some(&chosen.digest))
                .await?;
        }
        Err(Error::invalid(what, "an index of indexes without end"))
    }

    /// Gets all layers of an image and holds them, in the order of the image.
    pub(super) async fn get_layers(
        &self,
        layers: Vec<(Digest, LayerSource)>,
        progress: &PullGuard,
        steps: &Arc<dyn Steps>,
    ) -> Result<Held> {
        let held = self.store.hold(layers.iter().map(|(id, _)| id.clone()));
        let pending: Vec<_> = layers
            .iter()
            .map(|(id, source)| self.layers.request(id, source, steps))
            .collect();
        progress.layers(pending.iter().map(PendingLayer::progress).collect());
        let all = layers.iter().zip(pending);
        try_join_all(all.map(|((id, source), pending)| async move {
            if matches!(pending, PendingLayer::Ready(_)) {
                return Ok(());
            }
            let name = short(id);
            let active = steps.start(Step::Layer, Some(&name));
            let result = self.layers.get(id, source, pending, &active.steps()).await;
            active.end(Outcome::of(&result));
            result
        }))
        .await?;
        Ok(held)
    }

    /// Writes the record. Once started, this completes even if the future is dropped.
    pub(super) async fn record(
        &self,
        mut new: NewImage,
        held: Held,
        steps: &Arc<dyn Steps>,
    ) -> Result<ImageId> {
        let store = Arc::clone(&self.store);
        let work = blocking(move || {
            let id = new.record.id.clone();
            let based = super::rebase::rebase(&store, &held)?;
            new.record.layers.clone_from(&based.layers);
            new.record.size = size(&store, &held) + new.config.len() as u64;
            store.commit(new)?;
            Ok(id)
        });
        observed(&**steps, Step::Record, None, work).await
    }
}

/// The abbreviated digest of a layer, as tools print it.
pub(super) fn short(layer: &Digest) -> String {
    const SHOWN: usize = "sha256:".len() + 12;
    layer.as_str().chars().take(SHOWN).collect()
}

/// Bytes of all layers when unpacked. A layer that occurs twice in an image counts once.
fn size(store: &super::store::ContentStore, held: &Held) -> u64 {
    let mut layers = held.layers.clone();
    layers.sort();
    layers.dedup();
    let records = layers.iter().filter_map(|id| store.layer(id));
    records.map(|record| record.bytes).sum()
}
