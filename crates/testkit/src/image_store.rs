//! The image store of the built-in runtime, opened directly by a test.
//!
//! The lock is held until the last copy of its descriptor is closed. A child just forked by another test has a copy
//! until it calls `execve`, so the lock may briefly outlive the store.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use criscope_image::{Error, ImageStore, ImageStoreConfig};
use tempfile::TempDir;

use crate::packages::program;
use crate::{until, until_true};

/// A temporary directory with an image store.
///
/// The background thread of a store that was just closed may still write a mark, so a directory may get a file while it is being
/// removed. [`TempDir`] alone leaves it behind then, without a word.
#[derive(Debug)]
pub struct StoreDir(TempDir);

impl StoreDir {
    /// Creates it.
    #[expect(clippy::new_without_default, reason = "it creates a directory")]
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for StoreDir {
    fn drop(&mut self) {
        self.0.disable_cleanup(true);
        let removed = (0..10).any(|_| match fs::remove_dir_all(self.path()) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => false,
            removed => removed.is_ok(),
        });
        let path = self.path().display();
        assert!(removed || thread::panicking(), "{path} is left behind");
    }
}

/// Reopens a store that was open in this process before.
pub async fn open(config: &ImageStoreConfig) -> ImageStore {
    until("the lock of the image store", || async {
        match ImageStore::open(config.clone()).await {
            Ok(images) => Some(images),
            Err(Error::Locked { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

/// Closes a store, and waits until another program can open it.
pub async fn close(images: ImageStore, root: &Path) {
    drop(images);
    let lock = root.join("lock");
    until_true("the lock of the image store", async || {
        // In another process, because the next child of this one would hold the lock.
        let status = Command::new(program("flock", "util-linux"))
            .arg("--nonblock")
            .arg(&lock)
            .arg("true")
            .stdin(Stdio::null())
            .status();
        status.expect("start flock").success()
    })
    .await;
}

/// Imports an archive into the store of a stopped daemon.
pub async fn import(archive: &Path, root: &Path) {
    let images = ImageStore::open(ImageStoreConfig::new(root.to_owned())).await;
    let images = images.expect("store");
    images.import(archive).await.expect("import");
    close(images, root).await;
}
