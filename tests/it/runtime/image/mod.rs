//! Images from scripted registries, from a real one, and from archives. Layers have owners, devices and overlayfs
//! attributes, so these tests need root.

mod archives;
mod artifacts;
mod bounds;
mod bundles;
mod claimed;
mod crash;
mod elsewhere;
pub(super) mod encrypted;
mod exported;
mod head;
mod hostile;
mod layers;
mod loaded;
mod login;
mod parts;
mod pulls;
mod real;
mod redirects;
mod registries;
mod signed_by;
mod silent;
mod tokens;
mod told;
mod used_names;
mod verified;

use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_image::{ImageStore, ImageStoreConfig};

use crate::harness::image_store::StoreDir;
use crate::harness::packages::need_root;
pub(super) use crate::harness::{image as make, registry};

/// An empty list of files.
pub(super) const NOTHING: &[PathBuf] = &[];

/// A store in a temporary directory.
pub(super) struct Store {
    pub(super) images: ImageStore,
    pub(super) dir: StoreDir,
}

/// Short timeouts, and unused content is not retained.
pub(super) fn config(dir: &Path) -> ImageStoreConfig {
    let mut config = ImageStoreConfig::new(dir.join("store"));
    config.certs_dirs = vec![dir.join("certs.d")];
    config.docker_config = Some(dir.join("config.json"));
    config.keep_unused = Duration::ZERO;
    config.limits.min_free_bytes = 1 << 20;
    config.timeouts.backoff = Duration::from_millis(5);
    config.timeouts.max_backoff = Duration::from_millis(50);
    config.timeouts.stall = Duration::from_secs(20);
    config
}

impl Store {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut ImageStoreConfig)) -> Self {
        need_root();
        let dir = StoreDir::new();
        let mut config = config(dir.path());
        change(&mut config);
        let images = ImageStore::open(config).await.expect("open");
        Self { images, dir }
    }

    /// All files in the store except its fixed directories and its lock.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        files(&self.dir.path().join("store"))
    }

    /// Asserts that nothing is left after garbage collection.
    pub(super) async fn assert_empty(&self) {
        self.images.collect().await.expect("collect");
        assert_eq!(self.files(), NOTHING);
    }
}

pub(super) fn files(root: &Path) -> Vec<PathBuf> {
    let fixed = ["lock", "images", "content", "layers", "partial", "tmp"];
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            let relative = path.strip_prefix(root).expect("below").to_owned();
            let is_dir = path.symlink_metadata().expect("metadata").is_dir();
            if is_dir {
                todo.push(path);
            }
            // `pending/BOOT`
            let is_pending = is_dir && relative.starts_with("pending");
            if !is_pending && !fixed.iter().any(|name| relative == Path::new(name)) {
                found.push(relative);
            }
        }
    }
    found.sort();
    found
}
