//! Stable names of causes, for JSON, logs and labels.

use super::{CallFailure, Cause, EpisodeOutcome, FailureKind, SlowPhase};
use crate::diagnosis::before::Predecessor;
use crate::timeline::EpisodePhase;

impl Cause<'_> {
    /// The stable name of this kind of cause.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CallInFlight(_) => "call_in_flight",
            Self::CallFails(failure) => failure.name(),
            Self::DeletedWithoutSandbox { .. } => "deleted_without_sandbox",
            Self::Recovered { .. } => "recovered",
            Self::NoFurtherCall { .. } => "no_further_call",
            Self::ImageMissing { .. } => "image_absent",
            Self::WaitsForPull { .. } => "pull_queue",
            Self::WaitsForNode { fact, .. }
            | Self::NodeInGap { fact, .. }
            | Self::NodeInCall { fact, .. } => fact.name(),
            Self::BackendWasAway { .. } => "recovered",
            Self::AwaitsContainer { .. } => "awaiting_container",
            Self::WithNodeConditions { cause, .. } | Self::WithInjectedFault { cause, .. } => {
                cause.name()
            }
            Self::NoContainerStarted { .. } => "no_container_started",
            Self::CrashLoop(_) => "crash_loop",
            Self::PodStopped(_) => "pod_stopped",
            Self::EndedWithNode { .. } => "node_restarted",
            Self::Kubelet(cause) => cause.name(),
            Self::ContainerExited { .. } => "container_ended",
            Self::ProbeFails { .. } => "probe_fails",
            Self::OomKills { .. } => "oom_kill",
            Self::SandboxDied { .. } => "sandbox_died",
            Self::StartedAgain { before, .. } => match before {
                Predecessor::ContainerRun(_) => "container_ended",
                Predecessor::Sandbox(_) => "sandbox_replaced",
            },
            Self::SlowPhase(slow) => slow.name(),
            Self::UnusualCall { .. } => "unusual",
            Self::NotSlow(quick) => match quick.end {
                EpisodeOutcome::Incomplete => "begun",
                EpisodeOutcome::ContainerDone(_) => "container_done",
                _ => "quick",
            },
        }
    }
}

impl SlowPhase<'_> {
    fn name(&self) -> &'static str {
        match self.phase {
            EpisodePhase::Sandbox => "slow_sandbox",
            EpisodePhase::Network => "slow_network",
            EpisodePhase::ImagePull => "slow_image_pull",
            EpisodePhase::ContainerCreate => "slow_container_create",
            EpisodePhase::ContainerStart => "slow_container_start",
            EpisodePhase::InitContainer => "slow_init_container",
            EpisodePhase::Hook => "slow_hook",
            EpisodePhase::ContainerStop => "slow_container_stop",
            EpisodePhase::SandboxStop => "slow_sandbox_stop",
            EpisodePhase::ContainerRemove => "slow_container_remove",
            EpisodePhase::SandboxRemove => "slow_sandbox_remove",
            EpisodePhase::OutsideCri => "slow_outside_cri",
        }
    }
}

impl CallFailure<'_> {
    fn name(&self) -> &'static str {
        if let Some(fault) = self.kind.fault() {
            return fault.name();
        }
        match self.kind {
            FailureKind::Injected => "injected_fault",
            FailureKind::DeadlinePassed { .. } => "deadline_passed",
            FailureKind::RuntimeGaveUp { .. } => "runtime_gave_up",
            FailureKind::NameReserved { .. } => "name_reserved",
            FailureKind::CallerCancelled { .. } => "cancelled",
            FailureKind::Network { .. } => "network_failed",
            FailureKind::PauseImage { .. } => "pause_image_failed",
            FailureKind::Error { .. } => match EpisodePhase::from_method(self.last.method) {
                EpisodePhase::Sandbox => "sandbox_failed",
                EpisodePhase::ImagePull => "image_pull_failed",
                EpisodePhase::ContainerCreate => "container_create_failed",
                EpisodePhase::ContainerStart => "container_start_failed",
                EpisodePhase::ContainerStop => "container_stop_failed",
                EpisodePhase::SandboxStop => "sandbox_stop_failed",
                EpisodePhase::ContainerRemove => "container_remove_failed",
                EpisodePhase::SandboxRemove => "sandbox_remove_failed",
                EpisodePhase::Network
                | EpisodePhase::InitContainer
                | EpisodePhase::Hook
                | EpisodePhase::OutsideCri => "call_failed",
            },
        }
    }
}
