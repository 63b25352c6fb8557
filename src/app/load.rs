//! Loads images from archives: through the daemon if it runs, else directly into its image store.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Builder;

use super::ServeError;
use super::builtin::BuiltinRuntimeError;
use crate::config::{self, Config};
use crate::runtime::load::{self, LoadError};
use criscope_image::{ImageStore, ImageStoreConfig};

pub use crate::runtime::load::Loaded;

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Loads images.
#[derive(Debug)]
pub struct ImageLoader(ImageStoreAccess);

/// Who works on the image store.
#[derive(Debug)]
pub(super) enum ImageStoreAccess {
    /// The daemon with this state directory.
    Daemon(PathBuf),
    /// This process, which holds the lock of the store.
    Own(Box<(tokio::runtime::Runtime, ImageStore)>),
}

/// Why images, or this archive, cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImageLoaderError {
    /// There is no image store.
    #[error(
        "no backend of this configuration is the built-in runtime: images belong to the upstream, load them there"
    )]
    NotBuiltin,
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] ServeError),
    /// The archive cannot be loaded.
    #[error(transparent)]
    Archive(#[from] LoadError),
}

impl ImageStoreAccess {
    /// Finds out whether the daemon runs.
    ///
    /// # Errors
    /// The store is locked without a daemon that serves it.
    pub(super) fn find(config: &config::Runtime) -> Result<Self, ServeError> {
        if load::is_served(&config.state) {
            return Ok(Self::Daemon(config.state.clone()));
        }
        let threads = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(ServeError::Start)?;
        // The sync in the background ends with this process.
        let settings = ImageStoreConfig {
            wait_for_disk: true,
            ..config.images.store()
        };
        let opened = threads.block_on(ImageStore::open(settings));
        let opened = opened
            .map_err(|error| ServeError::Builtin(BuiltinRuntimeError::Runtime(error.into())))?;
        Ok(Self::Own(Box::new((threads, opened))))
    }
}

impl ImageLoader {
    /// Finds out whether the daemon runs.
    ///
    /// # Errors
    /// There is no built-in runtime, or its store is locked without a daemon that serves it.
    pub fn new(config: &Config) -> Result<Self, ImageLoaderError> {
        let config = config
            .runtime
            .as_deref()
            .ok_or(ImageLoaderError::NotBuiltin)?;
        Ok(Self(ImageStoreAccess::find(config)?))
    }

    /// Loads an archive from a seekable file. `progress` is called with bytes done and bytes in all, 0 if unknown.
    ///
    /// # Errors
    /// An invalid archive, one for another platform, a full disk, and so on.
    pub fn load(
        &self,
        file: File,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Loaded>, ImageLoaderError> {
        match &self.0 {
            ImageStoreAccess::Daemon(state) => Ok(load::load(state, &file, name, progress)?),
            ImageStoreAccess::Own(store) => {
                let (threads, images) = store.as_ref();
                Ok(threads.block_on(take_in(images, file, name, progress))?)
            }
        }
    }
}

async fn take_in(
    images: &ImageStore,
    file: File,
    name: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Loaded>, LoadError> {
    let import = images.import_file(file, Path::new(name));
    tokio::pin!(import);
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            result = &mut import => {
                let images = result.map_err(|error| LoadError::Failed(error.to_string()))?;
                return Ok(images.into_iter().map(Loaded::from).collect());
            }
            _ = ticks.tick() => {
                for pull in images.pulls() {
                    progress(pull.bytes_done, pull.bytes_total);
                }
            }
        }
    }
}
