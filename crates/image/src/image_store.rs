//! The image store: images by reference or ID, their layers, and their disk usage.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use criscope_linux::free_space::MinFree;

use crate::blocking::blocking;
use crate::config::ImageStoreConfig;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image_config::{self, ImageConfig};
use crate::layer::LayerFetcher;
use crate::progress::{EndedPull, PullView, Pulls};
use crate::registry::{ClientCertificate, RegistryClient, client_certificates};
use crate::store::{Collected, ContentStore, Held, LayerUsage, Problem, Record, Resolved};

/// The digest of an image's configuration.
pub type ImageId = Digest;

/// A store of images in a directory. Cheap to clone; clones share the store.
#[derive(Clone, Debug)]
pub struct ImageStore {
    pub(crate) store: Arc<ContentStore>,
    pub(crate) registries: Arc<RegistryClient>,
    pub(crate) layers: Arc<LayerFetcher>,
    pub(crate) pulls: Pulls,
    problems: Arc<[Problem]>,
    pub(crate) config: Arc<ImageStoreConfig>,
}

/// An image in the store.
#[derive(Clone, Debug)]
pub struct Image {
    /// The digest of its configuration.
    pub id: ImageId,
    /// The references with a tag, in full form.
    pub tags: Vec<String>,
    /// The references with a digest, in full form.
    pub digests: Vec<String>,
    /// Bytes when unpacked, including layers shared with other images.
    pub size: u64,
    /// True if it is excluded from garbage collection.
    pub pinned: bool,
    /// Seconds since the Unix epoch.
    pub pulled_at: u64,
    /// The type of an artifact, which no container can be made from.
    pub artifact_type: Option<String>,
    /// The configuration for its containers.
    pub config: Arc<ImageConfig>,
}

/// The layers of an image, protected from removal until the lease is dropped.
#[derive(Debug)]
pub struct LayerLease {
    held: Held,
    paths: Vec<PathBuf>,
}

/// The disk usage of a store.
#[derive(Clone, Debug)]
pub struct FsInfo {
    /// The directory of the store.
    pub root: PathBuf,
    /// Approximate bytes of layers, records and incomplete blobs.
    pub used_bytes: u64,
    /// Approximate inodes.
    pub inodes_used: u64,
    /// The time of the measurement.
    pub at: SystemTime,
}

impl LayerLease {
    /// Directories for overlayfs, from the base of the image up.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The digests, to pass to [`ImageStore::hold`] after a restart.
    #[must_use]
    pub fn ids(&self) -> &[Digest] {
        &self.held.layers
    }
}

impl ImageStore {
    /// Opens the store, and removes what an interrupted process left incomplete. Complete but unused layers stay until
    /// [`Self::collect`], so that containers can call [`Self::hold`] first.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another process uses the store, [`Error::Io`].
    pub async fn open(config: ImageStoreConfig) -> Result<Self> {
        let config = Arc::new(config);
        let own = Arc::clone(&config);
        let (store, problems) = blocking(move || ContentStore::open(&own)).await?;
        for problem in &problems {
            tracing::warn!(
                what = problem.what,
                reason = problem.reason,
                "an unusable entry of the image store is ignored"
            );
        }
        let store = Arc::new(store);
        store.settle_later();
        Ok(Self {
            registries: Arc::new(RegistryClient::new(Arc::clone(&config))),
            layers: Arc::new(LayerFetcher::new(Arc::clone(&store), Arc::clone(&config))),
            pulls: Pulls::default(),
            problems: problems.into(),
            store,
            config,
        })
    }

    /// A handle of this store with other settings, for pulls, imports and checks by the returned handle. What is under way is completed with the
    /// settings that it began with; a layer that is being fetched is shared.
    ///
    /// What belongs to the open store stays: its directory, the boot ID, the number of concurrent downloads, `wait_for_disk`, failpoint
    /// and observer.
    #[must_use]
    pub fn with_settings(&self, config: ImageStoreConfig) -> Self {
        let own = &self.config;
        let config = Arc::new(ImageStoreConfig {
            root: own.root.clone(),
            boot: own.boot.clone(),
            max_concurrent_downloads: own.max_concurrent_downloads,
            wait_for_disk: own.wait_for_disk,
            failpoint: own.failpoint.clone(),
            observer: Arc::clone(&own.observer),
            ..config
        });
        Self {
            registries: Arc::new(RegistryClient::new(Arc::clone(&config))),
            layers: Arc::new(self.layers.with_settings(Arc::clone(&config))),
            config,
            ..self.clone()
        }
    }

    /// Entries of the store that could not be read when it was opened, and are ignored.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// An image by a reference, its ID, or a prefix of its ID. `None` if it is not in the store.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`], [`Error::AmbiguousId`].
    pub fn status(&self, reference: &str) -> Result<Option<Image>> {
        Ok(self.find(reference)?.map(|found| found.image))
    }

    /// Reads the labels of an image from disk. They are not kept in memory, because they can be large.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if they cannot be read, for instance because the image has been removed.
    pub async fn labels(&self, id: &ImageId) -> Result<BTreeMap<String, String>> {
        let (store, id) = (Arc::clone(&self.store), id.clone());
        blocking(move || image_config::labels(&store.content(&id)?)).await
    }

    /// The annotations of an image's OCI manifest. Empty for an artifact, for an image with a manifest of Docker or without one,
    /// and if they take more than 64 KiB of memory.
    pub fn annotations(&self, id: &ImageId) -> Arc<BTreeMap<String, String>> {
        self.store.annotations(id)
    }

    /// The client certificates of all registries in the directories of the configuration, at most 256: `client` in `hosts.toml`, or
    /// files in Docker's layout. A directory that cannot be read or has an invalid `hosts.toml` is skipped: a pull reports that.
    /// Reads the files anew, and blocks.
    #[must_use]
    pub fn client_certificates(&self) -> Vec<ClientCertificate> {
        client_certificates(&self.config.certs_dirs)
    }

    /// All images, or the one that `filter` refers to, ordered by ID.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::status`].
    pub fn list(&self, filter: Option<&str>) -> Result<Vec<Image>> {
        let mut images = match filter {
            Some(reference) => self.status(reference)?.into_iter().collect(),
            None => self
                .store
                .images()
                .into_iter()
                .map(Image::from)
                .collect::<Vec<_>>(),
        };
        images.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(images)
    }

    /// Removes an image with all its references, and the layers that nothing else needs. Returns whether it was in the
    /// store. Once started, the removal completes even if the future is dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::status`], and [`Error::Io`].
    pub async fn remove(&self, reference: &str) -> Result<bool> {
        let Some(Resolved { id, .. }) = self.resolve(reference)? else {
            return Ok(false);
        };
        let store = Arc::clone(&self.store);
        blocking(move || store.remove(&id)).await
    }

    /// Sets whether an image is excluded from garbage collection. The mark is for the caller's collector: [`Self::remove`]
    /// removes pinned images as well.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::status`], [`Error::NotFound`], and [`Error::Io`].
    pub async fn pin(&self, reference: &str, pinned: bool) -> Result<()> {
        let resolved = self.resolve(reference)?;
        let id = resolved.ok_or_else(|| Error::missing_image(reference))?.id;
        let store = Arc::clone(&self.store);
        let found = blocking(move || store.pin(&id, pinned)).await?;
        if found {
            Ok(())
        } else {
            Err(Error::missing_image(reference))
        }
    }

    /// Waits until all images are safely on disk.
    ///
    /// # Errors
    ///
    /// If the file system cannot be synced.
    pub async fn settled(&self) -> Result<()> {
        let store = Arc::clone(&self.store);
        blocking(move || store.wait_until_settled()).await
    }

    /// Leases the layers of an image, for a container.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::status`], and [`Error::NotFound`].
    pub fn layers(&self, reference: &str) -> Result<LayerLease> {
        let resolved = self.resolve(reference)?;
        let id = resolved.ok_or_else(|| Error::missing_image(reference))?.id;
        let image = self.store.image(&id);
        let (record, _) = image.ok_or_else(|| Error::missing_image(reference))?;
        // Held before the check; otherwise they could be removed in between.
        let layers = self.hold(record.layers);
        layers.map_err(|_| Error::missing_image(reference))
    }

    /// The layers of an image, each once, and their size on the disk. Other images may have them too.
    ///
    /// # Errors
    ///
    /// As [`Self::status`]; empty if the image is not in the store.
    pub fn layer_usage(&self, reference: &str) -> Result<Vec<LayerUsage>> {
        let found = self.resolve(reference)?;
        let usage = found.map(|found| self.store.layer_usage(&found.id));
        Ok(usage.unwrap_or_default())
    }

    /// The space that pulls leave free on the disk.
    #[must_use]
    pub fn min_free(&self) -> MinFree {
        self.config.limits.min_free()
    }

    /// Leases layers by the digests of [`LayerLease::ids`]: after a restart, for containers whose image may have been removed.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if one is not in the store.
    pub fn hold(&self, ids: impl IntoIterator<Item = Digest>) -> Result<LayerLease> {
        let held = self.store.hold(ids);
        for id in &held.layers {
            if self.store.layer(id).is_none() {
                let what = format!("layer {id}");
                return Err(Error::NotFound { what });
            }
        }
        let paths = held
            .layers
            .iter()
            .map(|id| self.store.disk.layer(id).join("fs"));
        let paths = paths.collect();
        Ok(LayerLease { held, paths })
    }

    /// Measures the disk usage.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub async fn fs_info(&self) -> Result<FsInfo> {
        let store = Arc::clone(&self.store);
        let (used_bytes, inodes_used) = blocking(move || store.usage()).await?;
        Ok(FsInfo {
            root: self.config.root.clone(),
            used_bytes,
            inodes_used,
            at: SystemTime::now(),
        })
    }

    /// The number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.images().len()
    }

    /// Returns whether the store has no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all unpacked layers.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        self.store.layer_bytes()
    }

    /// Pulls and imports in progress.
    #[must_use]
    pub fn pulls(&self) -> Vec<PullView> {
        self.pulls.views()
    }

    /// The most recent pulls and imports that ended, oldest first.
    #[must_use]
    pub fn ended_pulls(&self) -> Vec<EndedPull> {
        self.pulls.ended()
    }

    /// Removes layers that no image or lease needs and that have been unused for [`ImageStoreConfig::keep_unused`]. Call it
    /// periodically, and only after all containers have called [`Self::hold`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub async fn collect(&self) -> Result<Collected> {
        let store = Arc::clone(&self.store);
        let unused_for = self.config.keep_unused;
        blocking(move || store.collect(unused_for)).await
    }
}

impl From<(Record, Arc<ImageConfig>)> for Image {
    fn from((record, config): (Record, Arc<ImageConfig>)) -> Self {
        Self {
            id: record.id,
            tags: record.tags.into_keys().collect(),
            digests: record.digests,
            size: record.size,
            pinned: record.pinned,
            pulled_at: record.pulled_at,
            artifact_type: record.artifact,
            config,
        }
    }
}
