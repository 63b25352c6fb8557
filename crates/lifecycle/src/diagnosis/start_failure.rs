//! Failures of starts as labels of metrics: the part of the start that fails, the cause, and whose fault it is, each of a closed set.

use std::time::Duration;

use super::cause::Cause;
use super::fault::FaultClass;
use super::kubelet::KubeletCause;
use super::pods::PodVerdict;
use super::{FaultOrigin, failure, phase};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::timeline::EpisodePhase;
use criscope_cri::Named as _;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

use EpisodePhase::{ContainerCreate, ContainerStart, ImagePull, Network, OutsideCri, Sandbox};
use FaultOrigin::{Cluster, Node, Pod, Registry};

/// The kubelet tries a start again at least every five minutes, and a try takes up to four. A start that was given up and is not tried
/// for longer belongs to a pod that is gone, or to a kubelet that is.
const RETRIED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Names of causes without a class of faults: failed calls first, then what keeps the kubelet from calling.
const OTHER_CAUSES: [&str; 24] = [
    "sandbox_failed",
    "restore_failed",
    "network_failed",
    "pause_image_failed",
    "image_pull_failed",
    "container_create_failed",
    "container_start_failed",
    "call_failed",
    "call_broken_off",
    "cancelled",
    "deadline_passed",
    "runtime_gave_up",
    "name_reserved",
    "injected_fault",
    "kubelet_sync_failed",
    "backend_down",
    "backend_hangs",
    "backend_not_ready",
    "image_fs_full",
    "no_kubelet",
    "kubelet_silent",
    "criscope_down",
    "criscope_stalled",
    "node_restarted",
];

/// The name for a cause that has no name of its own here.
const UNNAMED: &str = "other";

/// Number of names with repetitions: several classes of faults share a name.
const NAMED: usize = FaultClass::NAMES.len() + OTHER_CAUSES.len() + 1;

/// Each name once, and how many they are.
const DISTINCT: ([&str; NAMED], usize) = {
    let mut names = [UNNAMED; NAMED];
    let mut count = 0;
    let mut next = 0;
    while next < NAMED - 1 {
        let name = if next < OTHER_CAUSES.len() {
            OTHER_CAUSES[next]
        } else {
            FaultClass::NAMES[next - OTHER_CAUSES.len()]
        };
        if !contains(&names, count, name) {
            names[count] = name;
            count += 1;
        }
        next += 1;
    }
    (names, count + 1)
};

/// Returns whether the first `count` names have this one.
const fn contains(names: &[&str], count: usize, name: &str) -> bool {
    let mut at = 0;
    while at < count {
        if is_same(names[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

criscope_cri::listed! {
    /// Why a start fails.
    pub(crate) struct FailureCause in DISTINCT.0.split_at(DISTINCT.1).0;
}

impl FailureCause {
    /// The cause with this name; `other` if there is none.
    pub(crate) fn named(name: &str) -> Self {
        let place = Self::NAMES.iter().position(|known| *known == name);
        Self(place.unwrap_or(Self::NAMES.len() - 1))
    }

    /// The name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self.0]
    }
}

/// Why a pod cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StartFailure {
    /// The part of the start that fails.
    pub(crate) phase: EpisodePhase,
    pub(crate) origin: FaultOrigin,
    pub(crate) cause: &'static str,
}

/// The parts of a start that can fail. `OutsideCri` is the kubelet's own work, as mounting volumes.
pub(crate) const FAILING_PHASES: [EpisodePhase; 7] = [
    EpisodePhase::Sandbox,
    EpisodePhase::Restore,
    EpisodePhase::Network,
    EpisodePhase::ImagePull,
    EpisodePhase::ContainerCreate,
    EpisodePhase::ContainerStart,
    EpisodePhase::OutsideCri,
];

/// The failures that most clusters have. Their series exist from the start, so that the first one counts as an increase and graphs of a
/// healthy node show 0.
pub(crate) const COMMON_FAILURES: [StartFailure; 20] = [
    common(Sandbox, Node, "sandbox_failed"),
    common(Sandbox, Node, "deadline_passed"),
    common(Sandbox, Node, "runtime_away"),
    common(Sandbox, Node, "pause_image_failed"),
    common(Network, Node, "network_failed"),
    common(Network, Node, "cni_agent_away"),
    common(Network, Cluster, "cni_no_addresses"),
    common(ImagePull, Registry, "image_pull_failed"),
    common(ImagePull, Pod, "image_not_found"),
    common(ImagePull, Pod, "image_no_access"),
    common(ImagePull, Pod, "registry_unauthorized"),
    common(ImagePull, Registry, "registry_rate_limit"),
    common(ImagePull, Registry, "registry_dns"),
    common(ImagePull, Registry, "registry_timeout"),
    common(ImagePull, Registry, "registry_error"),
    common(ContainerCreate, Node, "container_create_failed"),
    common(ContainerCreate, Node, "mount_failed"),
    common(ContainerStart, Node, "container_start_failed"),
    common(ContainerStart, Pod, "command_not_found"),
    common(OutsideCri, Node, "kubelet_sync_failed"),
];

const fn common(phase: EpisodePhase, origin: FaultOrigin, cause: &'static str) -> StartFailure {
    StartFailure {
        phase,
        origin,
        cause,
    }
}

impl StartFailure {
    /// The failure that a failed call of a start shows.
    pub(crate) fn from_call(episode: &Episode, call: &EpisodeCall) -> Self {
        let failure = failure::call_failure(episode, call, call.ended_at(), false);
        let phase = phase(failure.last);
        let row = Cause::CallFails(failure).row();
        Self {
            phase,
            origin: row.origin.unwrap_or(FaultOrigin::Node),
            cause: FailureCause::named(row.name).name(),
        }
    }
}

impl PodVerdict<'_> {
    /// Why the pod of these episodes, or a container of it, cannot start; `None` if nothing of its start fails.
    pub(crate) fn start_failure(&self, pod: &[&Episode], now: UnixMicros) -> Option<StartFailure> {
        let row = self.diagnosis.cause.row();
        let origin = row.origin.unwrap_or(FaultOrigin::Node);
        let cause = FailureCause::named(row.name).name();
        if let Cause::Kubelet(KubeletCause::FailingSync(_)) = self.diagnosis.cause {
            let mut starts = pod.iter().filter(|episode| episode.kind == Kind::Start);
            let phase = EpisodePhase::OutsideCri;
            return starts.any(|start| start.is_open()).then_some(StartFailure {
                phase,
                origin,
                cause,
            });
        }
        let (episode, call) = failing_call(pod)?;
        if !episode.is_open() && now.since(episode.ended) >= RETRIED_WITHIN {
            return None;
        }
        let of_call = StartFailure::from_call(episode, call);
        let failure = match self.diagnosis.cause {
            Cause::WaitsForNode { .. } | Cause::BrokenOff(_) => StartFailure {
                origin,
                cause,
                ..of_call
            },
            _ => of_call,
        };
        FAILING_PHASES.contains(&failure.phase).then_some(failure)
    }
}

/// The newest failed call of the start, or of the restart, that fails now.
fn failing_call<'a>(pod: &[&'a Episode]) -> Option<(&'a Episode, &'a EpisodeCall)> {
    let failing = pod
        .iter()
        .copied()
        .filter(|episode| episode.kind != Kind::Stop && !episode.is_resolved());
    let newest = failing.max_by_key(|episode| episode.began)?;
    Some((newest, failure::newest_unresolved(newest)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::diagnosis::fault;

    #[test]
    fn every_class_of_faults_is_a_cause_once() {
        let names: BTreeSet<_> = FailureCause::NAMES.iter().collect();
        assert_eq!(names.len(), FailureCause::NAMES.len());
        for (name, _) in fault::documented() {
            assert_eq!(FailureCause::named(name).name(), name);
        }
        assert_eq!(FailureCause::named("quick").name(), "other");
    }

    /// The names that the table of causes writes itself.
    #[test]
    fn every_name_of_a_failed_call_is_a_cause() {
        let table = include_str!("cause/table.rs");
        let names = table
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|name| name.ends_with("_failed"));
        let missing: Vec<_> = names
            .filter(|name| !name.contains("stop") && !name.contains("remove"))
            .filter(|name| FailureCause::named(name).name() != *name)
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn common_failures_are_named() {
        for common in COMMON_FAILURES {
            assert_eq!(FailureCause::named(common.cause).name(), common.cause);
            assert!(FAILING_PHASES.contains(&common.phase), "{common:?}");
        }
    }
}
