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

use criscope::runtime::code::GrpcCode as _;
use criscope_image::{Auth, Error, ImageStore, ImageStoreConfig};

use crate::harness::image::*;
use crate::harness::image_store::StoreDir;
use crate::harness::registry::*;
pub(super) use crate::harness::{image as make, registry};
use crate::prelude::*;

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

    /// Pulls an image that is to be had; returns its id.
    pub(super) async fn pull(&self, name: &str) -> Digest {
        let pulled = soon(name, self.images.pull(name, None, None)).await;
        pulled.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Pulls an image with credentials.
    pub(super) async fn pull_as(&self, name: &str, auth: Option<Auth>) -> Digest {
        let pulled = soon(name, self.images.pull(name, auth, None)).await;
        pulled.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes the `hosts.toml` of a registry.
    pub(super) fn set_hosts(&self, registry: &str, text: &str) {
        let dir = self.dir.path().join("certs.d").join(registry);
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("hosts.toml"), text).expect("write");
    }

    /// Pulls an image that is refused.
    pub(super) async fn refuses(&self, name: &str) -> Error {
        let pulled = soon(name, self.images.pull(name, None, None)).await;
        pulled.expect_err(name)
    }

    /// An image that is there.
    pub(super) fn image(&self, name: &str) -> criscope_image::Image {
        let image = self.images.status(name).expect("status");
        image.unwrap_or_else(|| panic!("{name} is absent"))
    }

    /// The same store after a restart.
    pub(super) async fn reopened(self) -> Self {
        let Self { images, dir } = self;
        drop(images);
        let images = image_store::open(&config(dir.path())).await;
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

/// A store, and registries without images.
async fn with_registries<const COUNT: usize>() -> (Store, [Registry; COUNT]) {
    let store = Store::new().await;
    let mut registries = Vec::new();
    for _ in 0..COUNT {
        registries.push(Registry::start().await);
    }
    let Ok(registries) = registries.try_into() else {
        unreachable!("as many as were started");
    };
    (store, registries)
}

/// A store, and a registry with the image of this name.
async fn with_image() -> (Store, Registry, String) {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let name = registry.push("a", "1", &with_file(b"x"));
    (store, registry, name)
}

pub(super) fn files(root: &Path) -> Vec<PathBuf> {
    let fixed = ["lock", "images", "content", "layers", "partial", "tmp"];
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("a folder") {
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
