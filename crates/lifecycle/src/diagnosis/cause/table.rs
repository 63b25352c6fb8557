//! The table of causes: the stable name of each, for JSON, logs and labels, how bad it is, how long it matters, and what to do
//! about it.

use super::{CallFailure, Cause, EpisodeOutcome, FailureKind};
use crate::diagnosis::before::Predecessor;
use crate::diagnosis::kubelet::KubeletCause;
use crate::diagnosis::remarks::NextStep;
use crate::timeline::EpisodePhase;

use Relevance::{Always, UntilGone, UntilStopped};
use Severity::{Failing, Fine, Over, Slow};

/// How bad a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Nothing is the matter.
    Fine,
    /// It took long.
    Slow,
    /// Something failed or ended, and that is over.
    Over,
    /// The pod has a problem now.
    Failing,
}

/// How long a cause matters for its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relevance {
    /// Until a newer cause matters more.
    Always,
    /// Until the pod is stopped while its containers run. An example is a slow start.
    UntilStopped,
    /// Until the pod is gone for any reason: the cause is about containers that run, or ran well.
    UntilGone,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct CauseRow {
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) relevance: Relevance,
    /// What to do about the cause. No cause has a step yet.
    pub(crate) next: Option<NextStep>,
}

const fn row(name: &'static str, severity: Severity, relevance: Relevance) -> CauseRow {
    CauseRow {
        name,
        severity,
        relevance,
        next: None,
    }
}

impl Cause<'_> {
    /// The row of this cause.
    pub(crate) fn row(&self) -> CauseRow {
        match self {
            Self::CallInFlight(_) => row("call_in_flight", Failing, Always),
            Self::CallFails(failure) => row(failure.name(), Failing, Always),
            Self::NoFurtherCall { .. } => row("no_further_call", Failing, Always),
            Self::ImageMissing { .. } => row("image_absent", Failing, Always),
            Self::WaitsForPull { .. } => row("pull_queue", Failing, Always),
            Self::WaitsForNode { fact, .. } => row(fact.fact.name(), Failing, Always),
            Self::AwaitsContainer { .. } => row("awaiting_container", Failing, Always),
            Self::NoContainerStarted { .. } => row("no_container_started", Failing, Always),
            Self::CrashLoop(_) => row("crash_loop", Failing, Always),
            Self::ContainerExited(_) => row("container_ended", Failing, Always),
            Self::StoppedByOther { .. } => row("container_stopped", Failing, UntilGone),
            Self::ProbeFails(_) => row("probe_fails", Failing, UntilGone),
            Self::OomKills { .. } => row("oom_kill", Failing, UntilGone),
            Self::SandboxDied { .. } => row("sandbox_died", Failing, Always),
            Self::EndedWithNode { .. } => row("node_restarted", Failing, Always),
            Self::DeletedWithoutSandbox { .. } => row("deleted_without_sandbox", Over, Always),
            Self::Recovered(_) | Self::BackendWasAway(_) => row("recovered", Over, Always),
            Self::PodStopped(_) => row("pod_stopped", Over, Always),
            Self::StartedAgain(before) => match before {
                Predecessor::ContainerRun(_) => row("container_ended", Over, UntilGone),
                Predecessor::Sandbox(_) => row("sandbox_replaced", Over, UntilGone),
            },
            Self::NodeInGap { fact, .. } | Self::NodeInCall { fact, .. } => {
                row(fact.fact.name(), Over, UntilStopped)
            }
            Self::Kubelet(cause) => cause.row(),
            Self::SlowPhase(slow) => row(phase_names(slow.phase).0, Slow, UntilStopped),
            Self::UnusualCall { .. } => row("unusual", Slow, UntilStopped),
            Self::NotSlow(quick) => match quick.end {
                EpisodeOutcome::Incomplete => row("begun", Fine, UntilGone),
                EpisodeOutcome::ContainerDone(_) => row("container_done", Fine, UntilStopped),
                _ => row("quick", Fine, UntilGone),
            },
        }
    }
}

impl KubeletCause<'_> {
    fn row(&self) -> CauseRow {
        match self {
            Self::BeforeFirstCall { .. } => row("before_first_call", Slow, UntilStopped),
            Self::BeforeStop { .. } => row("before_stop", Slow, Always),
            Self::FailingSync(_) => row("kubelet_sync_failed", Failing, Always),
            Self::PullQueue { .. } => row("pull_queue", Slow, UntilStopped),
            Self::HookInFlight { .. } => row("hook_in_flight", Failing, Always),
            Self::PostStart { hook, .. } => match hook.result {
                Some(result) if !result.is_good() => row("slow_post_start_hook", Over, Always),
                _ => row("slow_post_start_hook", Slow, UntilStopped),
            },
            Self::ContainerStopped { .. } => row("slow_container_stop", Slow, Always),
            Self::ContainerKilled { .. } => row("container_killed", Over, UntilGone),
            Self::KillLoop(_) => row("kill_loop", Failing, Always),
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
            FailureKind::Error { .. } => phase_names(EpisodePhase::from_method(self.last.method)).1,
        }
    }
}

/// The names of a phase that took most of an episode, and of a failed call of the phase.
const fn phase_names(phase: EpisodePhase) -> (&'static str, &'static str) {
    match phase {
        EpisodePhase::Sandbox => ("slow_sandbox", "sandbox_failed"),
        EpisodePhase::Network => ("slow_network", "call_failed"),
        EpisodePhase::ImagePull => ("slow_image_pull", "image_pull_failed"),
        EpisodePhase::ContainerCreate => ("slow_container_create", "container_create_failed"),
        EpisodePhase::ContainerStart => ("slow_container_start", "container_start_failed"),
        EpisodePhase::InitContainer => ("slow_init_container", "call_failed"),
        EpisodePhase::Hook => ("slow_hook", "call_failed"),
        EpisodePhase::ContainerStop => ("slow_container_stop", "container_stop_failed"),
        EpisodePhase::SandboxStop => ("slow_sandbox_stop", "sandbox_stop_failed"),
        EpisodePhase::ContainerRemove => ("slow_container_remove", "container_remove_failed"),
        EpisodePhase::SandboxRemove => ("slow_sandbox_remove", "sandbox_remove_failed"),
        EpisodePhase::OutsideCri => ("slow_outside_cri", "call_failed"),
    }
}
