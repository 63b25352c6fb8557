//! The state of the node besides its calls: backends that do not answer or are not ready, whether a kubelet is connected, the
//! downtime of criscope itself, and pressure. Episodes carry the facts of their time, so that the story of a pod that waits for
//! the node tells so.
//!
//! `NodeWatch` checks once a second, on the side thread. Reads that may block (disks, files) run on its blocking pool, one at a
//! time. Facts are written to the journal.

mod alive;
mod boot;
mod bypass;
mod fact;
mod files;
mod history;
pub mod metrics;
mod oom;
mod polls;
mod pressure;
mod programs;
pub mod rollout;
mod troubles;
mod unknown;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(super) use self::alive::AliveFile;
pub(super) use self::boot::NodeBoot;
pub use self::bypass::{BYPASS_SINCE_FILE, BypassFiles, LAST_BYPASS_FILE};
pub(super) use self::fact::{NodeFact, NodeFactKind, restarted};
pub use self::files::ImageFilesystem;
pub(super) use self::history::{NodeHistory, is_same, note};
pub(super) use self::polls::{UnansweredPoll, unanswered};
pub(super) use self::pressure::{PressureSample, PressureShare, PressureSpan};
pub(super) use self::programs::NodePrograms;
pub(super) use self::watch::{NodeStatus, NodeWatch};

/// How long before or after it began a downtime may be noticed: criscope records once a second that it runs, and probes backends and
/// counts kubelets as often. Calls notice first.
pub(super) const DOWNTIME_NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// The state of a backend, from its probe and the kubelet's own Status calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendState {
    /// The name in the configuration.
    pub name: Arc<str>,
    /// Set to whether the backend answers; `None` before the first probe.
    pub up: Option<bool>,
    /// Time since which it answers or does not; `None` before the first probe.
    pub since: Option<SystemTime>,
    /// The reason why it does not answer.
    pub reason: String,
    /// The conditions that are false.
    pub not_ready: Vec<FalseCondition>,
    /// A path on the filesystem of the images, once a caller has asked for it.
    pub image_fs: Option<PathBuf>,
    /// The name of its runtime, such as `containerd`; `None` while it is unknown.
    pub runtime: Option<Box<str>>,
    /// The process of the backend; `None` while it is unknown.
    pub pid: Option<u32>,
    /// The cgroup driver with which criscope answered RuntimeConfig in its place, and where it is from.
    pub answered_driver: Option<Box<str>>,
}

/// A condition that is false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FalseCondition {
    /// `RuntimeReady` or `NetworkReady`.
    pub condition: String,
    /// Time since which the condition is false.
    pub since: SystemTime,
    /// The reason from the runtime, redacted.
    pub reason: String,
}

/// Reads the state of the node. Called once a second: it must not block.
pub trait NodeSource: Send + Sync {
    /// The backends, in the order of the configuration.
    fn backends(&self) -> Vec<BackendState>;

    /// Number of connections of kubelets.
    fn kubelets(&self) -> u64;
}

/// A node without any known state, for tests.
#[derive(Debug, Default)]
pub struct UnknownNode;

impl NodeSource for UnknownNode {
    fn backends(&self) -> Vec<BackendState> {
        Vec::new()
    }

    fn kubelets(&self) -> u64 {
        0
    }
}

impl fmt::Debug for dyn NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSource").finish_non_exhaustive()
    }
}
