//! The image store of the built-in runtime, opened directly by a test.
//!
//! The lock is held until the last copy of its descriptor is closed. A child just forked by another test has a copy
//! until it calls `execve`, so the lock may briefly outlive the store.

use std::path::Path;
use std::process::{Command, Stdio};

use criscope_image::{Error, ImageStore, ImageStoreConfig};

use crate::packages::program;
use crate::until;

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
    until("the lock of the image store", || async {
        // In another process, because the next child of this one would hold the lock.
        let status = Command::new(program("flock", "util-linux"))
            .arg("--nonblock")
            .arg(&lock)
            .arg("true")
            .stdin(Stdio::null())
            .status();
        status.expect("start flock").success().then_some(())
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
