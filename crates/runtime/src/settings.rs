//! The configuration that the runtime starts with or that a reload gives it, with the facts that the composition root has found on the
//! node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::oci::spec::{NodeFacts, RuntimeSupport};
use super::oci::{Filters, OciRuntime};
use super::paths::Paths;
use super::sections;

/// The settings of the runtime at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directories.
    pub paths: Paths,
    /// `criscope-shim`.
    pub shim: PathBuf,
    /// The cgroup of the shims, in each hierarchy where it can be created, so that a service manager that kills the daemon's
    /// cgroup does not kill them.
    pub shim_cgroup: PathBuf,
    /// The settings that a reload changes, as they were at the start.
    pub live: LiveSettings,
}

/// Settings that a reload changes, for pods, containers and calls that come after it.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// The configuration in effect: its live keys are those of the last reload, the others those of the start.
    pub config: sections::Runtime,
    /// The handler of pods that request none: one of `handlers`.
    pub default_handler: String,
    /// The handlers.
    pub handlers: Vec<UsableHandler>,
    /// The facts of the node, the policy for pods among them. What only a restart changes of them, such as the cgroup driver, is
    /// the value at the start.
    pub node: NodeFacts,
}

impl LiveSettings {
    /// How long to read the output of an exec after its process has exited: a child may keep it open. `None` is unlimited.
    pub(super) fn drain_exec(&self) -> Option<Duration> {
        Some(self.config.drain_exec_sync_io_timeout).filter(|drain| !drain.is_zero())
    }
}

/// A runtime handler whose program is there.
#[derive(Clone, Debug)]
pub struct UsableHandler {
    /// Its settings.
    pub settings: sections::Handler,
    /// The OCI runtime.
    pub oci: OciRuntime,
    /// The abilities of its OCI runtime and of the node.
    pub features: HandlerFeatures,
    /// The cache of compiled seccomp filters, if its runtime accepts them.
    pub filters: Option<Arc<Filters>>,
}

/// The abilities of the OCI runtime of a handler and of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandlerFeatures {
    /// True if its runtime and the kernel support recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The optional fields of specifications that its runtime knows.
    pub support: RuntimeSupport,
    /// True if its runtime and the kernel support user namespaces.
    pub user_namespaces: bool,
}
