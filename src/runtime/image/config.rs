//! What the image store is told when it is opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::platform::Platform;
use crate::runtime::observe::Watch;

/// Settings of the image store. [`ImagesConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct ImagesConfig {
    /// Where everything lies. Made with mode 0700, because layers hold set-uid programs.
    pub root: PathBuf,
    /// Folders in the layout of containerd's `certs.d`, the first that knows a registry wins.
    pub certs_dirs: Vec<PathBuf>,
    /// Docker's `config.json` with credentials.
    pub docker_config: Option<PathBuf>,
    /// Which images are for this machine.
    pub platform: Platform,
    /// Layers that are fetched and unpacked at the same time, over all pulls. There are extra turns for pulls that would have
    /// none: see `layer/turns.rs`.
    pub max_concurrent_downloads: usize,
    /// What images may take.
    pub limits: Limits,
    /// How the network is waited for.
    pub patience: Patience,
    /// How long layers and beginnings of layers that no image needs are kept, so that the next try goes on from there.
    pub keep_unused: Duration,
    /// Called where a crash would leave something half made; for tests that crash there.
    pub on_step: StepHook,
    /// Measures what is done.
    pub watch: Watch,
}

impl ImagesConfig {
    /// The defaults, with a store at this place.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            certs_dirs: vec![
                "/etc/containerd/certs.d".into(),
                "/etc/docker/certs.d".into(),
            ],
            docker_config: None,
            platform: Platform::host(),
            max_concurrent_downloads: 3,
            limits: Limits::default(),
            patience: Patience::default(),
            keep_unused: Duration::from_secs(3600),
            on_step: StepHook::default(),
            watch: Watch::default(),
        }
    }
}

/// What an image may take of this machine. Beyond it a pull fails.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one layer as it is fetched.
    pub max_layer_bytes: u64,
    /// Bytes of one layer when it is unpacked.
    pub max_unpacked_bytes: u64,
    /// Files, folders and so on in one layer.
    pub max_entries: u64,
    /// How many times larger than what was fetched an unpacked layer may be; only counted from 1 GiB on, because small
    /// layers of zeros are harmless and not rare.
    pub max_ratio: u64,
    /// Unpacked bytes from which on the ratio counts.
    pub ratio_from_bytes: u64,
    /// Bytes that stay free on the disk.
    pub min_free_bytes: u64,
    /// Inodes that stay free on the disk.
    pub min_free_inodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_layer_bytes: 64 << 30,
            max_unpacked_bytes: 256 << 30,
            max_entries: 4_000_000,
            max_ratio: 200,
            ratio_from_bytes: 1 << 30,
            min_free_bytes: 256 << 20,
            min_free_inodes: 10_000,
        }
    }
}

/// How long the network is waited for, and how often it is asked again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until a connection stands, unless the registry's settings say otherwise.
    pub connect: Duration,
    /// Until an answer begins, and then for each 64 KiB of it.
    pub stall: Duration,
    /// How long a layer is watched before it gives up its turn because others wait and it is slow.
    pub turn: Duration,
    /// Tries after the first that are made without any progress in between.
    pub retries: u32,
    /// Before the first retry; doubles with each.
    pub backoff: Duration,
    /// The longest pause, also if the registry asks for a longer one.
    pub max_backoff: Duration,
    /// For a credential helper.
    pub helper: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            turn: Duration::from_secs(30),
            retries: 4,
            backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            helper: Duration::from_secs(30),
        }
    }
}

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal),* $(,)?) => {
        /// Points at which a crash leaves something behind that the next start has to deal with.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Step {$($(#[$doc])* $step),*}

        impl Step {
            /// All, in the order in which they come.
            pub const ALL: &[Self] = &[$(Self::$step),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {$(Self::$step => $name),*}
            }
        }
    };
}

steps! {
    /// Manifest and configuration are known, nothing is on disk.
    Resolved = "image.resolved",
    /// Part of a layer has been fetched.
    LayerFetching = "image.layer-fetching",
    /// A layer is unpacked, still under a temporary name.
    LayerUnpacked = "image.layer-unpacked",
    /// A layer has its name.
    LayerPlaced = "image.layer-placed",
    /// Manifest and configuration are on disk.
    ContentWritten = "image.content-written",
    /// All layers are safe from a power failure.
    LayersSynced = "image.layers-synced",
    /// The image has its record.
    RecordWritten = "image.record-written",
    /// Other images have lost the tags that moved.
    TagsMoved = "image.tags-moved",
    /// The record of an image is gone, its layers are still there.
    RecordRemoved = "image.record-removed",
    /// What nobody needs has a temporary name.
    GarbageNamed = "image.garbage-named",
}

/// Is told of each [`Step`]. Does nothing by default.
#[derive(Clone, Default)]
pub struct StepHook(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl StepHook {
    /// Calls this at every step, on whatever thread it happens.
    pub fn new(hook: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(super) fn reached(&self, step: Step) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for StepHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}
