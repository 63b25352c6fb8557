//! Loading images from archives: by the daemon if it runs, else right into its image store.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Builder;

use super::Error;
use super::builtin::{BuiltinError, images};
use crate::config::Config;
use crate::runtime::load::{self, LoadError};
use criscope_image::ImageStore;

pub use crate::runtime::load::Loaded;

/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(250);

/// Who loads.
#[derive(Debug)]
pub enum Loader {
    /// The daemon with this state directory.
    Daemon(PathBuf),
    /// We do; the store is ours as long as this lives.
    Store(Box<(tokio::runtime::Runtime, ImageStore)>),
}

/// Why nothing, or not this archive, can be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// There is no image store.
    #[error(
        "no backend of this configuration is the built-in runtime: images belong to the upstream, load them there"
    )]
    NotBuiltin,
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] Error),
    /// Not this archive.
    #[error(transparent)]
    Archive(#[from] LoadError),
}

impl Loader {
    /// Finds out whether the daemon runs.
    ///
    /// # Errors
    /// There is no built-in runtime, or its store is neither served nor free.
    pub fn new(config: &Config) -> Result<Self, LoaderError> {
        let config = config.runtime.as_deref().ok_or(LoaderError::NotBuiltin)?;
        if load::is_served(&config.state) {
            return Ok(Self::Daemon(config.state.clone()));
        }
        let threads = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Error::Start)?;
        let opened = threads.block_on(ImageStore::open(images(&config.images)));
        let opened = opened.map_err(|error| Error::Builtin(BuiltinError::Runtime(error.into())))?;
        Ok(Self::Store(Box::new((threads, opened))))
    }

    /// Loads an archive, a file that can be read from any place. `progress` is told bytes done and bytes in all, 0 if
    /// unknown.
    ///
    /// # Errors
    /// The archive is none, or is not for this machine, or the disk is full, and so on.
    pub fn load(
        &self,
        file: File,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Loaded>, LoaderError> {
        match self {
            Self::Daemon(state) => Ok(load::load(state, &file, name, progress)?),
            Self::Store(store) => {
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
    let mut ticks = tokio::time::interval(PROGRESS);
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
