//! The rollout over the nodes of a cluster: which node is worked on, how many at a time, and when it stops.
//!
//! Kubernetes creates the pods of a DaemonSet all at once, so installers wait for a turn. Everything is in Leases of the
//! installers' namespace: one per node (a [`NodeRecord`]), and [`COORDINATOR_LEASE`]. One of the waiting installers holds the latter
//! and gives the turns ([`coordinator`]): [`plan`] decides, `turns` writes the decision into the records. An installer takes part
//! through [`participant`]. Installers that wait send nothing: they watch the two Leases that concern them ([`lease_watch`]). The
//! plugin reads the records too, on other systems. `docs/adr/0092-*` has the reasons.

#[cfg(target_os = "linux")]
pub mod coordinator;
#[cfg(target_os = "linux")]
pub(crate) mod events;
#[cfg(target_os = "linux")]
pub mod lease_watch;
#[cfg(target_os = "linux")]
pub mod local_state;
#[cfg(target_os = "linux")]
pub mod participant;
#[cfg(target_os = "linux")]
pub mod plan;
pub mod policy;
pub mod record;
#[cfg(target_os = "linux")]
pub mod removal;
pub mod summary;
#[cfg(target_os = "linux")]
mod turns;

use std::time::Duration;

pub use self::policy::{MaxParallel, RolloutPolicy};
pub use self::record::{Goal, NodeRecord, NodeState};

/// The Lease whose holder gives the turns.
pub const COORDINATOR_LEASE: &str = "criscope-install";

/// Label of the Leases of a rollout: [`COORDINATOR_LABEL_VALUE`], or a hash of the node's name.
pub const LEASE_LABEL: &str = "criscope.dev/rollout";

/// Value of [`LEASE_LABEL`] for [`COORDINATOR_LEASE`].
pub const COORDINATOR_LABEL_VALUE: &str = "coordinator";

/// Annotation of [`COORDINATOR_LEASE`]: no turns are given while it is there. Its text is the reason.
pub const PAUSED_ANNOTATION: &str = "criscope.dev/paused";

/// Annotation of [`COORDINATOR_LEASE`]: why nodes wait although a turn is free.
pub const STOPPED_ANNOTATION: &str = "criscope.dev/stopped";

/// Times of a rollout.
#[derive(Clone, Copy, Debug)]
pub struct RolloutTiming {
    /// How long a Lease is valid without a renewal.
    pub lease: Duration,
    /// Time between two renewals.
    pub renewal: Duration,
    /// Upper bound of the random delay before an installer applies for the coordinator's Lease.
    pub spread: Duration,
    /// How long a node that did not take its turn, or is not reachable, is passed over.
    pub pass_over: Duration,
}

impl Default for RolloutTiming {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            renewal: Duration::from_secs(10),
            spread: Duration::from_secs(5),
            pass_over: Duration::from_secs(60),
        }
    }
}

#[cfg(target_os = "linux")]
/// A random part of a duration, so that many installers do not act at once.
pub(crate) fn random_part(of: Duration) -> Duration {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::hash::RandomState::new().build_hasher().finish();
    of.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(target_os = "linux")]
/// Returns whether an error of the API server means that the object was changed or created by another client meanwhile.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
