//! Settings of an image store, and its failpoints.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use criscope_linux::free_space::MinFree;

use super::observer::{NoObserver, Observer};
use super::platform::Platform;

/// Settings of an image store. [`ImageStoreConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct ImageStoreConfig {
    /// The directory of the store. Created with mode 0700, because layers contain set-user-ID programs.
    pub root: PathBuf,
    /// Directories in the layout of containerd's `certs.d`. The first one that contains the registry is used.
    pub certs_dirs: Vec<PathBuf>,
    /// `registries.conf` of containers-registries.conf(5), with its directory `registries.conf.d`. What it names is looked up in
    /// `certs_dirs`.
    pub registries_conf: Option<PathBuf>,
    /// Hosts that a registry with TLS may redirect to without TLS, for content with a known digest: `host`, `host:port`, or `.domain` for
    /// all hosts below a domain.
    pub insecure_redirect_hosts: Vec<String>,
    /// Docker's `config.json` with credentials.
    pub docker_config: Option<PathBuf>,
    /// The platform that images are pulled for.
    pub platform: Platform,
    /// Layers that are fetched and unpacked at the same time, over all pulls. Pulls without a permit get extra ones: see
    /// `layer/permits.rs`.
    pub max_concurrent_downloads: usize,
    /// Limits of every image.
    pub limits: Limits,
    /// Bytes that a further connection fetches of a large layer with one request.
    pub piece_bytes: u64,
    /// Timeouts and retries of requests to registries.
    pub timeouts: Timeouts,
    /// The `User-Agent` of requests, such as `example/1.0`. The name before the slash is the client ID for token services.
    pub user_agent: String,
    /// How long layers and incomplete blobs that no image needs are kept, so that the next pull can use them.
    pub keep_unused: Duration,
    /// True if a pull ends only when the image is safely on disk. Otherwise the image can be used at once, is synced in the background,
    /// and lost if the power fails before that.
    pub wait_for_disk: bool,
    /// The boot ID, instead of the kernel's; for tests of power failures.
    pub boot: Option<String>,
    /// Programs that must accept every image that is pulled.
    pub verifiers: Option<VerifierPlugins>,
    /// The signature policy for images that are pulled, and for [`ImageStore::allow`](crate::ImageStore::allow).
    pub policy: Option<PolicyFiles>,
    /// Where the keys of encrypted layers come from.
    pub decryption: Decryption,
    /// Called at points where a crash leaves something incomplete; for crash tests.
    pub failpoint: FailpointHook,
    /// Receives the steps of pulls and imports.
    pub observer: Arc<dyn Observer>,
}

impl ImageStoreConfig {
    /// Returns the defaults, for a store in this directory.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            certs_dirs: vec![
                "/etc/containerd/certs.d".into(),
                "/etc/docker/certs.d".into(),
            ],
            registries_conf: None,
            insecure_redirect_hosts: Vec::new(),
            docker_config: None,
            platform: Platform::host(),
            max_concurrent_downloads: 3,
            piece_bytes: 16 << 20,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            user_agent: concat!("criscope/", env!("CARGO_PKG_VERSION")).to_owned(),
            keep_unused: Duration::from_secs(3600),
            wait_for_disk: false,
            boot: None,
            verifiers: None,
            policy: None,
            decryption: Decryption::default(),
            failpoint: FailpointHook::default(),
            observer: Arc::new(NoObserver),
        }
    }
}

/// Where the keys of encrypted layers come from. By default nowhere: encrypted images cannot be pulled.
#[derive(Clone, Debug)]
pub struct Decryption {
    /// The configuration of key providers, in the format of ocicrypt. Read for each pull of an encrypted image.
    pub key_providers: Option<PathBuf>,
    /// How long a key provider may take for one key.
    pub provider_timeout: Duration,
}

impl Default for Decryption {
    fn default() -> Self {
        Self {
            key_providers: None,
            provider_timeout: Duration::from_secs(30),
        }
    }
}

/// A directory of verifiers. Unlike in containerd, one that does not exist, is empty, or has more files than allowed refuses
/// all images: the administrator has asked for verification.
#[derive(Clone, Debug)]
pub struct VerifierPlugins {
    /// The directory. Every file in it must be executable.
    pub bin_dir: PathBuf,
    /// The most files in it.
    pub max_verifiers: usize,
    /// How long one verifier may take for one image.
    pub per_verifier_timeout: Duration,
}

/// Where the signature policies are.
#[derive(Clone, Debug, Default)]
pub struct PolicyFiles {
    /// The policy of namespaces without one of their own. Without it they have none.
    pub default: Option<PathBuf>,
    /// The directory with policies for single Kubernetes namespaces, `NAMESPACE.json`.
    pub namespaces: Option<PathBuf>,
    /// The directory `registries.d`, which says where signatures with GPG keys are. It need not exist.
    pub registries_d: PathBuf,
}

/// Limits of an image. Its pull fails if one is exceeded.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one layer's blob.
    pub max_layer_bytes: u64,
    /// Bytes of one layer's uncompressed archive.
    pub max_unpacked_bytes: u64,
    /// Maximum number of files, directories, links and so on in one layer.
    pub max_entries: u64,
    /// Maximum ratio of unpacked to compressed bytes. Applied from [`Self::ratio_from_bytes`] on, because small layers of
    /// zeros are harmless and common.
    pub max_ratio: u64,
    /// Unpacked bytes from which the ratio is applied.
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

impl Limits {
    /// The space that stays free on the disk.
    #[must_use]
    pub fn min_free(&self) -> MinFree {
        MinFree {
            bytes: self.min_free_bytes,
            inodes: self.min_free_inodes,
        }
    }
}

/// Timeouts and retries of requests to registries.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until a connection is established, unless `hosts.toml` has a `dial_timeout`.
    pub connect: Duration,
    /// Until a response begins. Then the window over which [`Self::least_rate`] is measured.
    pub stall: Duration,
    /// Bytes per second of a response, on average over each [`Self::stall`]. A server that sends less counts as silent.
    pub least_rate: u64,
    /// How long a layer's rate is measured before it can lose its permit for being slow while others wait.
    pub slow_layer: Duration,
    /// Maximum number of retries without progress in between; one after silence, which takes as long as the limits above.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each retry.
    pub backoff: Duration,
    /// The longest pause, also if the registry's `Retry-After` is longer.
    pub max_backoff: Duration,
    /// Timeout of a credential helper.
    pub helper: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            least_rate: 1 << 10,
            slow_layer: Duration::from_secs(30),
            retries: 4,
            backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            helper: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Bytes that must arrive within [`Self::stall`]; at least one.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )]
    pub(crate) fn least_bytes(&self) -> u64 {
        // A float is large enough for any rate, and the conversion saturates.
        ((self.least_rate as f64 * self.stall.as_secs_f64()) as u64).max(1)
    }
}

macro_rules! failpoints {
    ($($(#[$doc:meta])* $point:ident = $name:literal),* $(,)?) => {
        /// Points at which a crash leaves something that the next start has to clean up or continue.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Failpoint {$($(#[$doc])* $point),*}

        impl Failpoint {
            /// All points, in the order of a pull and a removal.
            pub const ALL: &[Self] = &[$(Self::$point),*];

            /// The name of the point.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {$(Self::$point => $name),*}
            }
        }
    };
}

failpoints! {
    /// Manifest and configuration are fetched, nothing is on disk.
    Resolved = "image.resolved",
    /// Part of a layer has been fetched.
    LayerFetching = "image.layer-fetching",
    /// A layer is unpacked under its temporary name.
    LayerUnpacked = "image.layer-unpacked",
    /// A layer has its final name.
    LayerPlaced = "image.layer-placed",
    /// Manifest and configuration are written.
    ContentWritten = "image.content-written",
    /// The record of the image is written, for this boot of the machine.
    RecordWritten = "image.record-written",
    /// All layers are synced to disk.
    LayersSynced = "image.layers-synced",
    /// The record of the image is among the ones that outlive a power failure.
    RecordMoved = "image.record-moved",
    /// Tags that moved to this image are removed from the records of other images.
    TagsMoved = "image.tags-moved",
    /// The record of an image is removed, but not its layers.
    RecordRemoved = "image.record-removed",
    /// Unused layers and content are renamed to temporary names.
    GarbageNamed = "image.garbage-named",
}

/// Called at each [`Failpoint`]. Does nothing by default.
#[derive(Clone, Default)]
pub struct FailpointHook(Option<Arc<dyn Fn(Failpoint) + Send + Sync>>);

impl FailpointHook {
    /// Calls `hook` at every failpoint, on the thread that reaches it.
    pub fn new(hook: impl Fn(Failpoint) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(super) fn reached(&self, point: Failpoint) {
        if let Some(hook) = &self.0 {
            hook(point);
        }
    }
}

impl fmt::Debug for FailpointHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}
