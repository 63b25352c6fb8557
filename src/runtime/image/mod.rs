//! Images: pulled from registries or imported from archives, unpacked into layers, listed, removed.
//!
//! [`Images`] is all that others need. An image is known by its id, the digest of its configuration; names only lead to
//! it. A layer lies unpacked in a folder of its own that overlayfs can stack; images share layers.
//!
//! What holds at all times, whatever is cancelled or killed:
//!
//! - An image that is listed is whole. Its record is the last thing that is written and the first that is removed.
//! - A layer that has a name is whole: it is made under another, checked, and then renamed. See `store`.
//! - A layer stays as long as an image, a pull or a container ([`Layers`]) needs it.
//! - Nothing that comes from outside is believed before its digest was checked, and nothing is read into memory or
//!   written to disk without a bound.

mod config;
mod credentials;
mod digest;
mod docker_config;
mod error;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod image_config;
mod import;
mod layer;
mod manifest;
mod name;
mod platform;
mod progress;
mod pull;
mod rebase;
mod registry;
mod store;
mod unpack;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use self::layer::blocking;
use self::progress::Pulls;
use self::registry::Registries;
use self::store::{Held, Record, Store};

pub use self::config::{ImagesConfig, Limits, Patience, Step, StepHook};
pub use self::credentials::{Auth, AuthFields, Credentials};
pub use self::digest::{Digest, NotADigest};
pub use self::error::{Error, Result};
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::image_config::ImageConfig;
pub use self::import::{FolderImport, ImportFolder, Imported};
pub use self::name::Name;
pub use self::platform::Platform;
pub use self::progress::{LayerPhase, LayerView, PullPhase, PullView};
pub(in crate::runtime) use self::store::RECORD_VERSION;
pub use self::store::{Collected, Problem};

/// The digest of an image's configuration.
pub type ImageId = Digest;

/// The image store. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Images {
    store: Arc<Store>,
    registries: Arc<Registries>,
    layers: Arc<layer::Layers>,
    pulls: Pulls,
    problems: Arc<[Problem]>,
    config: Arc<ImagesConfig>,
}

/// An image that is here.
#[derive(Clone, Debug)]
pub struct Image {
    /// What it is known by.
    pub id: ImageId,
    /// Its names with a tag, spelt out.
    pub tags: Vec<String>,
    /// Its names with a digest, spelt out.
    pub digests: Vec<String>,
    /// Bytes when unpacked, with layers that others share.
    pub size: u64,
    /// Not to be removed to make room.
    pub pinned: bool,
    /// Seconds after 1970.
    pub pulled_at: u64,
    /// What its containers start with.
    pub config: Arc<ImageConfig>,
}

/// The layers of an image, kept from being removed until this is dropped.
#[derive(Debug)]
pub struct Layers {
    held: Held,
    paths: Vec<PathBuf>,
}

/// What images take on the disk.
#[derive(Clone, Debug)]
pub struct FsInfo {
    /// Where they lie.
    pub root: PathBuf,
    /// Bytes of layers, records and what is being fetched, about.
    pub used_bytes: u64,
    /// Inodes, about.
    pub inodes_used: u64,
    /// When this was counted.
    pub at: SystemTime,
}

impl Layers {
    /// Folders for overlayfs, from the bottom up: the first is the base of the image.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Their names, to be written down and given to [`Images::hold`] after a restart.
    #[must_use]
    pub fn ids(&self) -> &[Digest] {
        &self.held.layers
    }
}

impl Images {
    /// Opens the store. Removes what was half made when the last process ended; everything else that nobody needs goes
    /// with [`Self::collect`], once containers have called [`Self::hold`].
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another process has it, [`Error::Io`].
    pub async fn open(config: ImagesConfig) -> Result<Self> {
        let config = Arc::new(config);
        let own = Arc::clone(&config);
        let (store, problems) = blocking(move || Store::open(&own)).await?;
        for problem in &problems {
            tracing::warn!(
                what = problem.what,
                reason = problem.reason,
                "passed over in the image store"
            );
        }
        let store = Arc::new(store);
        Ok(Self {
            registries: Arc::new(Registries::new(&config)),
            layers: Arc::new(layer::Layers::new(Arc::clone(&store), (*config).clone())),
            pulls: Pulls::default(),
            problems: problems.into(),
            store,
            config,
        })
    }

    /// What could not be used when the store was opened, and was passed over.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// An image by any of its names, its id, or the beginning of that.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`], [`Error::AmbiguousId`]; an image that is not here is none.
    pub fn status(&self, reference: &str) -> Result<Option<Image>> {
        let id = self.store.resolve(reference)?;
        Ok(id.and_then(|id| self.store.image(&id)).map(image))
    }

    /// The labels of an image, which are as many as it likes: they are read for this alone.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if they cannot be read, also when the image was removed meanwhile.
    pub async fn labels(&self, id: &ImageId) -> Result<BTreeMap<String, String>> {
        let (store, id) = (Arc::clone(&self.store), id.clone());
        blocking(move || image_config::labels(&store.content(&id)?)).await
    }

    /// All images, or the one that the filter names. In the order of their ids.
    ///
    /// # Errors
    ///
    /// As [`Self::status`].
    pub fn list(&self, filter: Option<&str>) -> Result<Vec<Image>> {
        let mut images = match filter {
            Some(reference) => self.status(reference)?.into_iter().collect(),
            None => self
                .store
                .images()
                .into_iter()
                .map(image)
                .collect::<Vec<_>>(),
        };
        images.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(images)
    }

    /// Removes an image with all its names, and the layers that nobody else needs. Whether it was here: removing one
    /// that is not is no error. Goes on to its end even if nobody waits.
    ///
    /// # Errors
    ///
    /// As [`Self::status`], and [`Error::Io`].
    pub async fn remove(&self, reference: &str) -> Result<bool> {
        let Some(id) = self.store.resolve(reference)? else {
            return Ok(false);
        };
        let store = Arc::clone(&self.store);
        blocking(move || store.remove(&id)).await
    }

    /// Says whether an image is to stay when room is made. This store removes a pinned image all the same if it is told
    /// to; the mark is for the kubelet.
    ///
    /// # Errors
    ///
    /// As [`Self::status`], [`Error::NotFound`], and [`Error::Io`].
    pub async fn pin(&self, reference: &str, pinned: bool) -> Result<()> {
        let missing = || Error::NotFound {
            what: format!("image {reference}"),
        };
        let id = self.store.resolve(reference)?.ok_or_else(missing)?;
        let store = Arc::clone(&self.store);
        let found = blocking(move || store.pin(&id, pinned)).await?;
        if found { Ok(()) } else { Err(missing()) }
    }

    /// The layers of an image, to make a container of it.
    ///
    /// # Errors
    ///
    /// As [`Self::status`], and [`Error::NotFound`].
    pub fn layers(&self, reference: &str) -> Result<Layers> {
        let missing = || Error::NotFound {
            what: format!("image {reference}"),
        };
        let id = self.store.resolve(reference)?.ok_or_else(missing)?;
        let (record, _) = self.store.image(&id).ok_or_else(missing)?;
        // Held first, then looked at: between the two they could have gone.
        let layers = self.hold(record.layers);
        layers.map_err(|_| missing())
    }

    /// Keeps layers by their names, as [`Layers::ids`] gave them: after a restart, for containers whose image may have
    /// been removed since.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if one is not here.
    pub fn hold(&self, ids: impl IntoIterator<Item = Digest>) -> Result<Layers> {
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
        Ok(Layers { held, paths })
    }

    /// What images take.
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

    /// How many images are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.images().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all unpacked layers.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        self.store.layer_bytes()
    }

    /// Pulls and imports in flight.
    #[must_use]
    pub fn pulls(&self) -> Vec<PullView> {
        self.pulls.views()
    }

    /// Removes what neither an image nor a holder needs and that was not touched for [`ImagesConfig::keep_unused`]. To be
    /// called now and then, and not before all containers have called [`Self::hold`].
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

fn image((record, config): (Record, Arc<ImageConfig>)) -> Image {
    Image {
        id: record.id,
        tags: record.tags.into_keys().collect(),
        digests: record.digests,
        size: record.size,
        pinned: record.pinned,
        pulled_at: record.pulled_at,
        config,
    }
}
