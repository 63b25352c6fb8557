//! The table of causes: the stable name of each, for JSON, logs and labels, how bad it is, how long it matters, and whose fault it is.
//! `next_step` says what to do about each.

use super::{CallFailure, Cause, EpisodeOutcome, FailureKind};
use crate::diagnosis::before::Predecessor;
use crate::diagnosis::broken_off::RetryState;
use crate::diagnosis::kubelet::KubeletCause;
use crate::diagnosis::origin::{FaultOrigin, exit_origin};
use crate::timeline::EpisodePhase;
use crate::view::PodState;

use FaultOrigin::{Node, Pod, Registry};
use Relevance::{Always, UntilGone, UntilStopped};
use Severity::{Failing, Fine, Impaired, Over, Restarting, Slow};

/// How bad a cause is. Of two faults of a pod the worse one is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Nothing is the matter.
    Fine,
    /// It took long.
    Slow,
    /// Something failed or ended, and that is over.
    Over,
    /// A container runs, and something is wrong with it.
    Impaired,
    /// A container does not stay up.
    Restarting,
    /// The pod, or one of its containers, cannot start or stop.
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
    /// The state that the cause means for its pod, where the calls alone do not show it.
    pub(crate) state: Option<PodState>,
    /// Whose fault it is; `None` if nothing failed, or a person did it.
    pub(crate) origin: Option<FaultOrigin>,
}

const fn row(name: &'static str, severity: Severity, relevance: Relevance) -> CauseRow {
    CauseRow {
        name,
        severity,
        relevance,
        state: None,
        origin: None,
    }
}

impl CauseRow {
    /// The same row, of a cause that means this state.
    const fn means(mut self, state: PodState) -> Self {
        self.state = Some(state);
        self
    }

    /// The same row, of a loop.
    const fn means_loop(self, is_over: bool) -> Self {
        if is_over {
            self
        } else {
            self.means(PodState::CrashLoop)
        }
    }

    /// The same row, of a cause that is a fault of this origin.
    const fn by(mut self, origin: FaultOrigin) -> Self {
        self.origin = Some(origin);
        self
    }
}

impl Cause<'_> {
    /// The row of this cause.
    pub(crate) fn row(&self) -> CauseRow {
        match self {
            Self::CallInFlight(_) => row("call_in_flight", Failing, Always).by(Node),
            Self::CallFails(failure) => row(failure.name(), Failing, Always).by(failure.origin()),
            Self::NoFurtherCall { .. } => row("no_further_call", Failing, Always).by(Node),
            Self::ContainerNotCreated { .. } => {
                row("container_not_created", Failing, Always).by(Pod)
            }
            Self::ImageMissing { .. } => row("image_absent", Failing, Always).by(Pod),
            Self::WaitsForPull { .. } => row("pull_queue", Failing, Always).by(Node),
            Self::WaitsForNode { fact, .. } => row(fact.fact.name(), Failing, Always).by(Node),
            Self::AwaitsContainer { .. } => row("awaiting_container", Failing, Always).by(Pod),
            Self::NoContainerStarted { .. } => {
                row("no_container_started", Failing, Always).by(Node)
            }
            Self::InitRetried(_) => row("init_container_retried", Over, UntilStopped).by(Pod),
            Self::ProbeLate(_) => row("late_probe", Slow, UntilStopped).by(Pod),
            Self::NeverStarted { .. } => row("never_started", Over, UntilStopped),
            Self::CrashLoop(crashes) if crashes.settled_for.is_some() => {
                row("recovered", Over, UntilGone)
            }
            Self::CrashLoop(crashes) => {
                let row = row("crash_loop", Restarting, Always).by(exit_origin(crashes.last));
                row.means_loop(crashes.is_over)
            }
            Self::ContainerExited(exit) => row("container_ended", Restarting, Always)
                .means(PodState::Failed)
                .by(exit_origin(exit)),
            Self::OtherExits { exit, .. } => {
                row("container_ended", Restarting, Always).by(exit_origin(exit))
            }
            Self::NodeTrouble(fact) => row(fact.fact.name(), Impaired, Always).by(Node),
            Self::SlowCall(call) => {
                let phase = EpisodePhase::from_method(call.method);
                row(phase_names(phase).0, Slow, Always).by(phase_origin(phase))
            }
            Self::ContainersStopped(_) => {
                row("container_stopped", Impaired, UntilGone).means(PodState::Stopped)
            }
            Self::ProbeHangs(probe) if probe.ended_ago.is_some() => {
                row("probe_hung", Over, UntilGone).by(Node)
            }
            Self::ProbeHangs(_) => row("probe_hangs", Impaired, UntilGone)
                .means(PodState::Failing)
                .by(Node),
            Self::ProbeFails(_) => row("probe_fails", Impaired, UntilGone)
                .means(PodState::Failing)
                .by(Pod),
            Self::OomKills { .. } => row("oom_kill", Impaired, UntilGone).by(Pod),
            Self::SandboxDied { .. } => row("sandbox_died", Failing, Always)
                .means(PodState::Failed)
                .by(Node),
            Self::EndedWithNode { .. } => row("node_restarted", Failing, Always)
                .means(PodState::Failed)
                .by(Node),
            Self::BrokenOff(call) => match call.retry {
                RetryState::Succeeded => row("recovered", Over, Always),
                _ => row("call_broken_off", Failing, Always).by(Node),
            },
            Self::DeletedWithoutSandbox { .. } => row("deleted_without_sandbox", Over, Always),
            Self::Recovered(_) | Self::BackendWasAway(_) => row("recovered", Over, Always),
            Self::PodStopped(_) => row("pod_stopped", Over, Always),
            Self::StartedAgain(before) => match before {
                Predecessor::ContainerRun(_) => row("container_ended", Over, UntilGone),
                Predecessor::Sandbox(_) => row("sandbox_replaced", Over, UntilGone),
            },
            Self::NodeInGap { fact, .. } | Self::NodeInCall { fact, .. } => {
                row(fact.fact.name(), Over, UntilStopped).by(Node)
            }
            Self::Kubelet(cause) => cause.row(),
            Self::SlowPhase(slow) => {
                let row = row(phase_names(slow.phase).0, Slow, UntilStopped);
                row.by(phase_origin(slow.phase))
            }
            Self::UnusualCall { .. } => row("unusual", Slow, UntilStopped).by(Node),
            Self::NotSlow(quick) => match quick.end {
                EpisodeOutcome::Incomplete => row("begun", Fine, UntilGone),
                EpisodeOutcome::Containers { ref up, ref ended }
                    if up.is_empty() && !ended.is_empty() =>
                {
                    CauseRow {
                        state: quick.end.state(),
                        ..row("container_done", Fine, UntilStopped)
                    }
                }
                _ => row("quick", Fine, UntilGone),
            },
        }
    }
}

impl EpisodeOutcome<'_> {
    /// The state of a pod whose containers have all ended.
    pub(crate) fn state(&self) -> Option<PodState> {
        let Self::Containers { up, ended } = self else {
            return None;
        };
        if !up.is_empty() || ended.is_empty() {
            return None;
        }
        let mut own = ended.iter().filter(|exit| !exit.stop_requested);
        Some(if own.any(|exit| exit.code != 0) {
            PodState::Failed
        } else if ended.iter().any(|exit| exit.stop_requested) {
            PodState::Stopped
        } else {
            PodState::Completed
        })
    }
}

impl KubeletCause<'_> {
    fn row(&self) -> CauseRow {
        match self {
            Self::BeforeFirstCall { .. } => row("before_first_call", Slow, UntilStopped),
            Self::BeforeStop { .. } => row("before_stop", Slow, Always),
            Self::FailingSync(fails) => row("kubelet_sync_failed", Failing, Always)
                .means(PodState::Failing)
                .by(fails.origin()),
            Self::PullQueue { .. } => row("pull_queue", Slow, UntilStopped),
            Self::HookInFlight { .. } => row("hook_in_flight", Impaired, Always).by(Pod),
            Self::PostStart { hook, .. } => match hook.result {
                Some(result) if result.has_failed() => row("slow_post_start_hook", Over, Always),
                _ => row("slow_post_start_hook", Slow, UntilStopped),
            },
            Self::ContainerStopped { .. } => row("slow_container_stop", Slow, Always),
            Self::ContainerKilled { .. } => row("container_killed", Over, UntilGone),
            Self::KillLoop(kills) if kills.settled_for.is_some() => {
                row("recovered", Over, UntilGone)
            }
            Self::KillLoop(kills) => {
                let row = row("kill_loop", Restarting, Always).by(Pod);
                row.means_loop(kills.is_over)
            }
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
            FailureKind::DeadlinePassed { .. } | FailureKind::NetworkHung { .. } => {
                "deadline_passed"
            }
            FailureKind::RuntimeGaveUp { .. } => "runtime_gave_up",
            FailureKind::NameReserved { .. } => "name_reserved",
            FailureKind::CallerCancelled { .. } => "cancelled",
            FailureKind::Network { .. } => "network_failed",
            FailureKind::PauseImage { .. } => "pause_image_failed",
            FailureKind::Error { .. } => phase_names(EpisodePhase::from_method(self.last.method)).1,
        }
    }
}

/// Whose fault it is if a phase takes long.
const fn phase_origin(phase: EpisodePhase) -> FaultOrigin {
    match phase {
        EpisodePhase::ImagePull => Registry,
        EpisodePhase::InitContainer | EpisodePhase::Hook | EpisodePhase::ContainerStop => Pod,
        _ => Node,
    }
}

/// The names of a phase that took most of an episode, and of a failed call of the phase.
const fn phase_names(phase: EpisodePhase) -> (&'static str, &'static str) {
    match phase {
        EpisodePhase::Sandbox => ("slow_sandbox", "sandbox_failed"),
        EpisodePhase::Restore => ("slow_restore", "restore_failed"),
        EpisodePhase::Network => ("slow_network", "call_failed"),
        EpisodePhase::ImagePull => ("slow_image_pull", "image_pull_failed"),
        EpisodePhase::ContainerCreate => ("slow_container_create", "container_create_failed"),
        EpisodePhase::ContainerStart => ("slow_container_start", "container_start_failed"),
        EpisodePhase::InitContainer => ("slow_init_container", "call_failed"),
        EpisodePhase::Hook => ("slow_hook", "call_failed"),
        EpisodePhase::Checkpoint => ("slow_checkpoint", "call_failed"),
        EpisodePhase::ContainerStop => ("slow_container_stop", "container_stop_failed"),
        EpisodePhase::SandboxStop => ("slow_sandbox_stop", "sandbox_stop_failed"),
        EpisodePhase::ContainerRemove => ("slow_container_remove", "container_remove_failed"),
        EpisodePhase::SandboxRemove => ("slow_sandbox_remove", "sandbox_remove_failed"),
        EpisodePhase::OutsideCri => ("slow_outside_cri", "call_failed"),
    }
}
