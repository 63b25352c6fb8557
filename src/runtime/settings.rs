//! The settings of the runtime, which the composition root derives from the configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::classes::ClassSettings;
use super::nri::NriSettings;
use super::oci::OciRuntime;
use super::oci::spec::{HandlerOptions, NodeFacts, RuntimeSupport};
use super::paths::Paths;
use crate::cri::image_pattern::ImagePattern;
use crate::settings::EffectiveSettings;
use criscope_image::ImageStoreConfig;

/// The settings of the runtime; see the module documentation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directories.
    pub paths: Paths,
    /// `criscope-shim`.
    pub shim: PathBuf,
    /// The cgroup of the shims, in each hierarchy where it can be created, so that a service manager that kills the daemon's
    /// cgroup does not kill them.
    pub shim_cgroup: PathBuf,
    /// How long layers that no image needs are kept.
    pub keep_unused: Duration,
    /// The directory whose archives are imported at start and when they appear or change.
    pub import_dir: Option<PathBuf>,
    /// The network, unless a handler has its own.
    pub cni: criscope_cni::Settings,
    /// A template of a network configuration, used if the kubelet announces the pod CIDR and there is no network yet.
    pub cni_template: Option<PathBuf>,
    /// True if plugins release at start everything that no cached attachment holds (CNI's GC).
    pub cni_gc: bool,
    /// True if each sandbox with a network of its own has a process, for cAdvisor.
    pub sandbox_process: bool,
    /// The period of measurements of writable layers.
    pub stats_period: Duration,
    /// The Node Resource Interface; `None` turns it off.
    pub nri: Option<NriSettings>,
    /// The settings that a reload changes, as they were at the start.
    pub live: LiveSettings,
}

/// Settings that a reload changes, for pods, containers and calls that come after it.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// The handler of pods that request none: one of `handlers`.
    pub default_handler: String,
    /// The OCI runtimes.
    pub handlers: Vec<HandlerSettings>,
    /// The facts of the node, the policy for pods among them. What only a restart changes of them, such as the cgroup driver, is
    /// the value at the start.
    pub node: NodeFacts,
    /// The classes of block I/O and RDT.
    pub classes: ClassSettings,
    /// The image store, whose directory does not change after the start.
    pub images: ImageStoreConfig,
    /// Images that are reported as pinned, so that the kubelet does not remove them. An explicit RemoveImage still does.
    pub pinned_images: Vec<ImagePattern>,
    /// The directories of CDI specifications; empty turns CDI off.
    pub cdi_dirs: Vec<PathBuf>,
    /// The directories of hooks of all containers.
    pub hooks_dirs: Vec<PathBuf>,
    /// Longest content of a line of a container's log, in bytes.
    pub max_log_line: u32,
    /// How long to read the output of an ExecSync after its process has exited: a child may keep it open. `None` is unlimited.
    pub drain_exec: Option<Duration>,
    /// True if the `Volumes` of images are ignored.
    pub ignore_image_volumes: bool,
    /// True if CheckpointContainer is answered.
    pub criu: bool,
    /// The configuration in effect, to be shown.
    pub in_effect: Shown,
}

/// Settings as they are shown, by key path in the syntax of the file. `Debug` leaves them out: they say again what the other
/// fields say.
#[derive(Clone, Default)]
pub struct Shown(pub EffectiveSettings);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

/// A runtime handler.
#[derive(Clone, Debug)]
pub struct HandlerSettings {
    /// The name, as RuntimeClasses refer to it.
    pub name: String,
    /// The OCI runtime.
    pub oci: OciRuntime,
    /// The options for specifications.
    pub options: HandlerOptions,
    /// `--no-pivot`, for nodes whose root is a ram disk.
    pub no_pivot: bool,
    /// `--no-new-keyring`.
    pub no_new_keyring: bool,
    /// The directory of its own networks, and how many of them a pod is attached to (0 for all).
    pub cni: Option<(PathBuf, usize)>,
    /// True if its runtime and the kernel support recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The optional fields of specifications that its runtime knows.
    pub support: RuntimeSupport,
    /// True if its runtime and the kernel support user namespaces.
    pub user_namespaces: bool,
    /// True if its runtime accepts compiled seccomp filters; see [`super::oci::Filters`].
    pub takes_filters: bool,
}
