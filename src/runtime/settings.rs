//! What the runtime is told when it is opened. The composition root makes it from the configuration.

use std::path::PathBuf;
use std::time::Duration;

use super::oci::OciRuntime;
use super::oci::spec::{HandlerOptions, NodeFacts};
use super::paths::Paths;
use crate::cri::image_pattern::ImagePattern;
use criscope_image::ImageStoreConfig;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything lies.
    pub paths: Paths,
    /// `criscope-shim`.
    pub shim: PathBuf,
    /// The cgroup shims are moved into, below each hierarchy that lets it be made, so that a service manager that kills the
    /// daemon's does not take them along.
    pub shim_cgroup: PathBuf,
    /// The handler that serves a pod which asks for none: one of `handlers`.
    pub default_handler: String,
    /// The OCI runtimes.
    pub handlers: Vec<HandlerSettings>,
    /// The image store.
    pub images: ImageStoreConfig,
    /// Images that the kubelet is told not to remove, whenever they came. Removed by name they go all the same.
    pub pinned_images: Vec<ImagePattern>,
    /// Archives put here are imported at start and when they appear or change.
    pub import_dir: Option<PathBuf>,
    /// The network, unless a handler has its own.
    pub cni: criscope_cni::Settings,
    /// A template of a network configuration, used when the kubelet tells the pod CIDR and there is no network yet.
    pub cni_template: Option<PathBuf>,
    /// What the node can.
    pub node: NodeFacts,
    /// Where CDI specifications are; empty turns CDI off.
    pub cdi_dirs: Vec<PathBuf>,
    /// Longest content of a line of a container's log, in bytes.
    pub max_log_line: u32,
    /// How long the output of an ExecSync may stay open after its process ended: a child of it may hold it. `None` is for ever.
    pub drain_exec: Option<Duration>,
    /// Image `Volumes` are not made.
    pub ignore_image_volumes: bool,
    /// How often writable layers are measured.
    pub stats_period: Duration,
}

/// One runtime handler.
#[derive(Clone, Debug)]
pub struct HandlerSettings {
    /// Its name, as pods ask for it.
    pub name: String,
    /// The OCI runtime.
    pub oci: OciRuntime,
    /// What changes in specifications.
    pub options: HandlerOptions,
    /// `--no-pivot`: the root of the node is a ram disk.
    pub no_pivot: bool,
    /// `--no-new-keyring`.
    pub no_new_keyring: bool,
    /// Networks of its own: their directory, and how many of them a pod gets (0: all).
    pub cni: Option<(PathBuf, usize)>,
    /// Its runtime and the kernel can mount recursively read-only.
    pub recursive_read_only: bool,
    /// Its runtime and the kernel can do user namespaces.
    pub user_namespaces: bool,
    /// Its runtime takes seccomp filters that it compiled before; see [`super::oci::Filters`].
    pub takes_filters: bool,
}
