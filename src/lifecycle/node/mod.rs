//! The state of the node beside its calls: which backends do not answer or are not ready, whether a kubelet is connected, when
//! criscope itself was down, and pressure. Episodes carry the facts of their time, so that a pod that waits for the node says
//! so.
//!
//! `Watch` looks once a second, on the side thread; what may block (disks, files) is read on its blocking pool, one read at a
//! time. Facts are written to the journal.

mod alive;
mod boot;
mod fact;
mod files;
mod history;
pub(crate) mod metrics;
mod oom;
mod polls;
mod pressure;
mod unknown;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) use self::alive::Alive;
pub(super) use self::boot::Boot;
pub(super) use self::fact::{FactKind, NodeFact, restarted};
pub use self::files::ImageFs;
pub(super) use self::history::{NodeHistory, is_same, note};
pub(super) use self::polls::{Unanswered, unanswered};
pub(super) use self::pressure::{PressureShare, PressureSpan, Sample as PressureSample};
pub(super) use self::watch::{NodeStatus, Watch};

/// A backend, as its probe and the kubelet's own Status calls found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendState {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Whether it answers; `None` before the first probe.
    pub up: Option<bool>,
    /// Since when; `None` before the first probe.
    pub since: Option<SystemTime>,
    /// Why it does not answer.
    pub reason: String,
    /// The conditions that are false.
    pub not_ready: Vec<NotReady>,
    /// A path on the filesystem of its images, once a caller has asked for it.
    pub image_fs: Option<PathBuf>,
    /// Its process; `None` while that is unknown.
    pub pid: Option<u32>,
}

/// A condition that is false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// `RuntimeReady` or `NetworkReady`.
    pub condition: String,
    /// Since when.
    pub since: SystemTime,
    /// What the runtime says, redacted.
    pub reason: String,
}

/// Reads the state of the node. Called once a second: it must not block.
pub trait NodeSource: Send + Sync {
    /// The backends, in the order of the configuration.
    fn backends(&self) -> Vec<BackendState>;

    /// Number of connections of kubelets.
    fn kubelets(&self) -> u64;
}

/// A node of which nothing is known, for tests.
#[derive(Debug, Default)]
pub struct Nothing;

impl NodeSource for Nothing {
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
