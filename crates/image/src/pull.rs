//! Pulls: from a reference to the record of an image.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;

use super::artifact::ArtifactManifest;
use super::blocking::blocking;
use super::config::Failpoint;
use super::credentials::Auth;
use super::descriptor::Descriptor;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::ParsedConfig;
use super::image_store::{ImageId, ImageStore};
use super::layer::{LayerSource, PendingLayer};
use super::manifest::{FetchedManifest, ImageManifest, MAX_CONFIG, Manifest};
use super::observer::{ObservedPull, Outcome, Step, Steps, observed};
use super::platform::Fit;
use super::progress::{PullGuard, PullPhase};
use super::reference::Reference;
use super::registry::{Answers, Repository};
use super::requests;
use super::resolve::Resolved;
use super::store::{Held, NewImage, Origin, Record};
use super::verify::Subject;

/// An image that may be fetched: what becomes its record, and its layers.
struct Recipe {
    record: Record,
    /// The document with the image's ID.
    config: Vec<u8>,
    contents: Vec<(Digest, Vec<u8>)>,
    layers: Vec<(Digest, LayerSource)>,
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

    /// Like [`Self::pull`], with more options.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::pull`].
    pub async fn pull_with(&self, reference: &str, options: &PullOptions) -> Result<ImageId> {
        let candidates = self.registries.candidates(reference)?;
        let observed = ObservedPull::start(&self.config.observer);
        let result = self.pull_first(reference, &candidates, options).await;
        observed.end(&result);
        result
    }

    /// Pulls the first of several names that can be pulled.
    async fn pull_first(
        &self,
        text: &str,
        candidates: &[Reference],
        options: &PullOptions,
    ) -> Result<ImageId> {
        if let [only] = candidates {
            return self.pull_until(only, options).await;
        }
        let mut answers = Answers::default();
        for candidate in candidates {
            match self.pull_until(candidate, options).await {
                Ok(id) => return Ok(id),
                // The deadline is for all together.
                Err(error @ Error::DeadlineExceeded { .. }) => return Err(error),
                Err(error) => answers.add(candidate.registry(), error),
            }
        }
        let error = answers.into_error(text);
        Err(error.unwrap_or_else(|| Error::internal("a name that stands for nothing")))
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
        let pull = self.pull_repository(&repository, reference, options, &progress, &steps);
        let result = pull.await;
        for note in repository.notes.all() {
            steps.server_remark(&reference.to_string(), &note);
        }
        result
    }

    async fn pull_repository(
        &self,
        repository: &Arc<Repository>,
        reference: &Reference,
        options: &PullOptions,
        progress: &PullGuard,
        steps: &Arc<dyn Steps>,
    ) -> Result<ImageId> {
        let active = steps.start(Step::Resolve, None);
        let inner = active.steps();
        let recipe = self.resolve_and_verify(repository, reference, options, &inner);
        let recipe = requests::within(&*active, recipe).await;
        active.end(Outcome::from_result(&recipe));
        let Recipe {
            record,
            config,
            contents,
            layers,
        } = recipe?;
        self.config.failpoint.reached(Failpoint::Resolved);
        let held = self.get_layers(layers, progress, steps).await?;
        progress.enter(PullPhase::Recording);
        let new = NewImage {
            record,
            config,
            contents,
        };
        self.record(new, held, steps).await
    }

    /// Fetches manifest and configuration. Nothing but manifests and signatures is fetched of an image that is refused.
    async fn resolve_and_verify(
        &self,
        repository: &Arc<Repository>,
        reference: &Reference,
        options: &PullOptions,
        steps: &Arc<dyn Steps>,
    ) -> Result<Recipe> {
        let Resolved {
            content,
            fetched,
            top,
            config: stored,
        } = self.resolve_remote(repository, reference).await?;
        let subject = Subject {
            reference,
            top: &top,
            manifest: &fetched.digest,
            namespace: options.namespace.as_deref(),
        };
        let evidence = self.verify(repository, &subject, steps).await?;
        let digest = fetched.digest.clone();
        let mut origin = Origin::new(&top, &fetched, &self.config.platform);
        let (content, config, told) = match content {
            // The configuration shows whether this is an image. A larger one than an image may have belongs to an artifact.
            Manifest::Undeclared(manifest) if manifest.config.size > MAX_CONFIG => {
                (manifest.artifact()?, None, None)
            }
            Manifest::Undeclared(manifest) => {
                let config = configuration(repository, &manifest.config, stored).await?;
                let told = manifest.config.digest.clone();
                (manifest.decide(&config)?, Some(config), Some(told))
            }
            Manifest::Image(manifest) => {
                let config = configuration(repository, &manifest.config, stored).await?;
                (Manifest::Image(manifest), Some(config), None)
            }
            content => (content, None, None),
        };
        let mut recipe = match (content, config) {
            (Manifest::Image(manifest), Some(config)) => {
                let document = (manifest, config);
                self.image_recipe(repository, reference, document, fetched, steps)
                    .await?
            }
            (Manifest::Artifact(manifest), config) => {
                let mut recipe = artifact_recipe(repository, manifest, fetched);
                origin.config.clone_from(&told);
                recipe.contents.extend(told.zip(config));
                recipe
            }
            _ => return Err(Error::internal("a manifest that is neither")),
        };
        let record = &mut recipe.record;
        record.add_reference(&reference.at(top.digest));
        if reference.tag().is_some() {
            record.add_reference(reference);
        }
        record.manifest = Some(digest);
        record.origins = vec![origin];
        for found in evidence {
            let (digest, document) = found.document()?;
            record.evidence.push(digest.clone());
            recipe.contents.push((digest, document));
        }
        Ok(recipe)
    }

    /// Checks the configuration of an image against the manifest. The platform that it names is only compared: images with a wrong one
    /// are common, and run elsewhere.
    async fn image_recipe(
        &self,
        repository: &Arc<Repository>,
        reference: &Reference,
        (manifest, config): (ImageManifest, Vec<u8>),
        fetched: FetchedManifest,
        steps: &Arc<dyn Steps>,
    ) -> Result<Recipe> {
        let parsed = ParsedConfig::read(&config)?;
        parsed.check_layers(manifest.layers.len())?;
        let platform = &self.config.platform;
        if parsed.fit(platform) == Fit::Other {
            let declared = &parsed.platform;
            let text =
                format!("the image says that it is for {declared}, and this node is {platform}");
            steps.remark(&reference.to_string(), &text);
        }
        let keys = self.config.decryption.unwrap_keys(
            reference,
            &manifest.layers,
            &parsed.diff_ids,
            steps,
        );
        let keys = keys.await?;
        let record = Record::new(manifest.config.digest, parsed.diff_ids.clone());
        let sources = manifest.layers.into_iter().zip(keys);
        let sources =
            sources.map(|(layer, key)| LayerSource::Registry(Arc::clone(repository), layer, key));
        Ok(Recipe {
            record,
            config,
            contents: vec![(fetched.digest, fetched.bytes)],
            layers: parsed.diff_ids.into_iter().zip(sources).collect(),
        })
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
            let active = steps.start(Step::Layer, Some(id.short()));
            let result = self.layers.get(id, source, pending, &active.steps()).await;
            active.end(Outcome::from_result(&result));
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
        let min_free = self.config.limits.min_free();
        let work = blocking(move || {
            let id = new.record.id.clone();
            let based = super::rebase::rebase(&store, &held, min_free)?;
            new.record.layers.clone_from(&based.layers);
            new.record.size = size(&store, &held) + new.config.len() as u64;
            store.commit(new)?;
            Ok(id)
        });
        observed(&**steps, Step::Record, None, work).await
    }
}

/// The configuration of an image: the stored one, if it is what the manifest names.
async fn configuration(
    repository: &Repository,
    descriptor: &Descriptor,
    stored: Option<Vec<u8>>,
) -> Result<Vec<u8>> {
    match stored {
        Some(bytes) if Digest::sha256(&bytes) == descriptor.digest => Ok(bytes),
        _ => repository.small_blob(descriptor, MAX_CONFIG).await,
    }
}

/// An artifact is stored like an image with one layer, the directory with its files. Both have the digest of its manifest.
fn artifact_recipe(
    repository: &Arc<Repository>,
    manifest: ArtifactManifest,
    fetched: FetchedManifest,
) -> Recipe {
    let mut record = Record::new(fetched.digest.clone(), vec![fetched.digest.clone()]);
    record.artifact = Some(manifest.artifact_type);
    let source = LayerSource::Artifact(Arc::clone(repository), manifest.files.into());
    Recipe {
        record,
        config: fetched.bytes,
        contents: Vec::new(),
        layers: vec![(fetched.digest, source)],
    }
}

/// Bytes of all layers when unpacked. A layer that occurs twice in an image counts once.
fn size(store: &super::store::ContentStore, held: &Held) -> u64 {
    let mut layers = held.layers.clone();
    layers.sort();
    layers.dedup();
    let layers = layers.iter().filter_map(|id| store.layer(id));
    layers.map(|layer| layer.file.bytes).sum()
}
