//! The image store of a runtime, when a test opens it itself.
//!
//! Its lock goes with the last copy of a descriptor. A program that another test of this process is just starting has one
//! of each until it has become what it is to be: so the lock may outlive the store for a moment.

use std::path::Path;
use std::process::{Command, Stdio};

use criscope_image::{Error, ImageStore, ImageStoreConfig};

use super::packages::program;
use super::until;

/// Opens a store that was open in this process before.
pub(crate) async fn open(config: &ImageStoreConfig) -> ImageStore {
    until("a store that nobody has", || async {
        match ImageStore::open(config.clone()).await {
            Ok(images) => Some(images),
            Err(Error::Locked { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

/// Closes a store, so that another program can open it from now on.
pub(crate) async fn close(images: ImageStore, root: &Path) {
    drop(images);
    let lock = root.join("lock");
    until("a store that nobody has", || async {
        // Not here, or the next program that is started would have it.
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
