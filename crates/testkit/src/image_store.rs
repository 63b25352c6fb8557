//! The image store of the built-in runtime, opened by a test itself.
//!
//! Its lock is held until the last copy of a descriptor is closed. A child that another test has just forked has copies
//! until it calls `execve`, so the lock may outlive the store for a moment.

use std::path::Path;
use std::process::{Command, Stdio};

use criscope_image::{Error, ImageStore, ImageStoreConfig};

use crate::packages::program;
use crate::until;

/// Opens a store that was open in this process before.
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

/// Closes a store, so that another program can open it from now on.
pub async fn close(images: ImageStore, root: &Path) {
    drop(images);
    let lock = root.join("lock");
    until("the lock of the image store", || async {
        // By another process, or the next child would hold the lock.
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

/// Puts an archive into the store of a daemon that does not run.
pub async fn import(archive: &Path, root: &Path) {
    let images = ImageStore::open(ImageStoreConfig::new(root.to_owned())).await;
    let images = images.expect("store");
    images.import(archive).await.expect("import");
    close(images, root).await;
}
