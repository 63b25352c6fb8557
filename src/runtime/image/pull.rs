//! A pull, from a name to a record.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;

use super::config::Step;
use super::credentials::Auth;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::Parsed;
use super::layer::{Source, blocking};
use super::manifest::{ImageManifest, MAX_CONFIG, MAX_DEPTH, Manifest, choose};
use super::name::Name;
use super::progress::{PullGuard, PullPhase};
use super::registry::{Fetched, Session};
use super::store::{Held, NewImage, Record};
use super::{ImageId, Images};
use crate::call::steps::{RuntimeStep, StepOutcome};
use crate::runtime::observe::Watch;

/// What is known of an image before its layers.
struct Resolved {
    manifest: ImageManifest,
    /// Of this machine's image.
    own: Fetched,
    /// Of what the name stands for: the same, or an index.
    top: Digest,
    config: Vec<u8>,
    parsed: Parsed,
}

impl Images {
    /// Gets an image from its registry, or what is missing of it, and returns its id. Dropping the future stops it; what
    /// was fetched is kept for a while.
    ///
    /// # Errors
    ///
    /// Every one of [`Error`]; [`Error::DeadlineExceeded`] at the deadline.
    pub async fn pull(
        &self,
        reference: &str,
        auth: Option<Auth>,
        deadline: Option<Instant>,
    ) -> Result<ImageId> {
        let name = Name::parse(reference)?;
        let counted = Counted::begin(&self.config.watch);
        let ended = self.pull_until(&name, auth, deadline).await;
        counted.end(ended.is_ok());
        ended
    }

    async fn pull_until(
        &self,
        name: &Name,
        auth: Option<Auth>,
        deadline: Option<Instant>,
    ) -> Result<ImageId> {
        let pull = self.pull_named(name, auth);
        let Some(deadline) = deadline else {
            return pull.await;
        };
        let ended = tokio::time::timeout_at(deadline.into(), pull).await;
        ended.unwrap_or_else(|_| {
            Err(Error::DeadlineExceeded {
                reference: name.to_string(),
            })
        })
    }

    async fn pull_named(&self, name: &Name, auth: Option<Auth>) -> Result<ImageId> {
        let progress = self.pulls.begin(name.to_string());
        let session = Arc::new(self.registries.session(name, auth.as_ref())?);
        let watch = &self.config.watch;
        let resolving = self.resolve_remote(&session, name);
        let resolved = watch.step(RuntimeStep::ImageResolve, None, resolving);
        let resolved = resolved.await?;
        self.config.on_step.reached(Step::Resolved);
        let Resolved {
            manifest,
            own,
            top,
            config,
            parsed,
        } = resolved;
        let layers = manifest.layers.into_iter();
        let sources = layers.map(|layer| Source::Registry(Arc::clone(&session), layer));
        let layers: Vec<_> = parsed.diff_ids.into_iter().zip(sources).collect();
        let (held, ids) = self.get_layers(layers, &progress).await?;
        progress.enter(PullPhase::Recording);
        let mut record = Record::new(manifest.config.digest, ids);
        record.name(&name.at(top));
        if name.tag().is_some() {
            record.name(name);
        }
        record.manifest = Some(own.digest.clone());
        let new = NewImage {
            record,
            config,
            manifest: Some((own.digest, own.bytes)),
        };
        self.record(new, held).await
    }

    /// Manifest and configuration, checked against each other and this machine.
    async fn resolve_remote(&self, session: &Session, name: &Name) -> Result<Resolved> {
        let what = name.to_string();
        let mut fetched = session.manifest(name.version(), name.digest()).await?;
        let top = fetched.digest.clone();
        for _ in 0..MAX_DEPTH {
            let manifests = match Manifest::parse(&fetched.bytes, &fetched.media_type)? {
                Manifest::Index(manifests) => manifests,
                Manifest::Image(manifest) => {
                    let config = session.small_blob(&manifest.config, MAX_CONFIG).await?;
                    let parsed = Parsed::read(&config)?;
                    parsed.check(&what, manifest.layers.len(), &self.config.platform)?;
                    return Ok(Resolved {
                        manifest,
                        own: fetched,
                        top,
                        config,
                        parsed,
                    });
                }
            };
            let chosen = choose(&what, &manifests, &self.config.platform)?;
            fetched = session
                .manifest(chosen.digest.as_str(), Some(&chosen.digest))
                .await?;
        }
        Err(Error::invalid(what, "an index of indexes without end"))
    }

    /// Gets all layers of an image, and holds them. What is returned beside are the folders in which they lie.
    pub(super) async fn get_layers(
        &self,
        layers: Vec<(Digest, Source)>,
        progress: &PullGuard,
    ) -> Result<(Held, Vec<Digest>)> {
        let ids: Vec<_> = layers.iter().map(|(id, _)| id.clone()).collect();
        let held = self.store.hold(ids.iter().cloned());
        let wanted: Vec<_> = layers
            .iter()
            .map(|(id, source)| self.layers.want(id, source))
            .collect();
        progress.layers(wanted.iter().map(super::layer::Wanted::progress).collect());
        let all = layers.iter().zip(wanted);
        let watch = &self.config.watch;
        try_join_all(all.map(|((id, source), wanted)| async move {
            if matches!(wanted, super::layer::Wanted::Here(_)) {
                return Ok(());
            }
            let name = short(id);
            let getting = self.layers.get(id, source, wanted);
            watch
                .step(RuntimeStep::ImageLayer, Some(&name), getting)
                .await
        }))
        .await?;
        Ok((held, ids))
    }

    /// Writes the record. From here on it goes on to its end even if nobody waits.
    pub(super) async fn record(&self, mut new: NewImage, held: Held) -> Result<ImageId> {
        let store = Arc::clone(&self.store);
        let work = blocking(move || {
            let id = new.record.id.clone();
            let based = super::rebase::rebase(&store, &held)?;
            new.record.layers.clone_from(&based.layers);
            new.record.size = size(&store, &held) + new.config.len() as u64;
            store.commit(new)?;
            Ok(id)
        });
        let watch = &self.config.watch;
        watch.step(RuntimeStep::ImageRecord, None, work).await
    }
}

/// A layer as people call it: the beginning of its digest.
pub(super) fn short(layer: &Digest) -> String {
    const SHOWN: usize = "sha256:".len() + 12;
    layer.as_str().chars().take(SHOWN).collect()
}

/// A pull in the metrics, also if it is dropped.
struct Counted {
    watch: Watch,
    outcome: StepOutcome,
}

impl Counted {
    fn begin(watch: &Watch) -> Self {
        if let Some(metrics) = watch.metrics() {
            metrics.pull_begins();
        }
        Self {
            watch: watch.clone(),
            outcome: StepOutcome::Cancelled,
        }
    }

    fn end(mut self, well: bool) {
        self.outcome = match well {
            true => StepOutcome::Ok,
            false => StepOutcome::Error,
        };
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(metrics) = self.watch.metrics() {
            metrics.pull_ended(self.outcome);
        }
    }
}

/// Bytes of all layers when unpacked; a layer that is there twice takes its place once.
fn size(store: &super::store::Store, held: &Held) -> u64 {
    let mut layers = held.layers.clone();
    layers.sort();
    layers.dedup();
    let records = layers.iter().filter_map(|id| store.layer(id));
    records.map(|record| record.bytes).sum()
}
