//! Stable names of causes, for JSON, logs and labels.

use super::{Cause, End, Failure, How, Slow};
use crate::lifecycle::diagnosis::before::Before;
use crate::lifecycle::timeline::EpisodePhase;

impl Cause<'_> {
    /// A stable name of its kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::InFlight(_) => "call_in_flight",
            Self::Failing(failure) => failure.name(),
            Self::Deleted { .. } => "deleted_without_sandbox",
            Self::Recovered { .. } => "recovered",
            Self::Silent { .. } => "no_further_call",
            Self::ImageAbsent { .. } => "image_absent",
            Self::PullWaits { .. } => "pull_queue",
            Self::NodeBlocks { fact, .. }
            | Self::NodeInGap { fact, .. }
            | Self::NodeInCall { fact, .. } => fact.name(),
            Self::BackendWasAway { .. } => "recovered",
            Self::Awaiting { .. } => "awaiting_container",
            Self::Beside { cause, .. } | Self::Injected { cause, .. } => cause.name(),
            Self::GivenUp { .. } => "no_container_started",
            Self::CrashLoop(_) => "crash_loop",
            Self::PodStopped(_) => "pod_stopped",
            Self::EndedWithNode { .. } => "node_restarted",
            Self::Kubelet(cause) => cause.name(),
            Self::Exited { .. } => "container_ended",
            Self::ProbeFails { .. } => "probe_fails",
            Self::OomKills { .. } => "oom_kill",
            Self::SandboxDied { .. } => "sandbox_died",
            Self::Again { before, .. } => match before {
                Before::Run(_) => "container_ended",
                Before::Sandbox(_) => "sandbox_replaced",
            },
            Self::Slow(slow) => slow.name(),
            Self::Unusual { .. } => "unusual",
            Self::Quick(quick) => match quick.end {
                End::Begun => "begun",
                End::Done(_) => "container_done",
                _ => "quick",
            },
        }
    }
}

impl Slow<'_> {
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

impl Failure<'_> {
    fn name(&self) -> &'static str {
        if let Some(fault) = self.how.fault() {
            return fault.name();
        }
        match self.how {
            How::Injected => "injected_fault",
            How::Late { .. } => "deadline_passed",
            How::GaveUp { .. } => "runtime_gave_up",
            How::Reserved { .. } => "name_reserved",
            How::Cancelled { .. } => "cancelled",
            How::Network { .. } => "network_failed",
            How::PauseImage { .. } => "pause_image_failed",
            How::Error { .. } => match EpisodePhase::of(self.last.method) {
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
