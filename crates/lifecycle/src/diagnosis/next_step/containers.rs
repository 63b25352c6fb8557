//! Steps about containers that end, are killed, or fail a probe.

use std::time::Duration;

use super::context::command_word;
use super::{NextStep, StepContext};
use crate::diagnosis::kill_reason::KillReason;
use crate::diagnosis::kubelet::ContainerStop;
use crate::diagnosis::reasons::UnseenKill;
use crate::diagnosis::sandbox::SandboxDeath;
use crate::episode_store::{ExitRecord, ReachedLimit};
use criscope_cri::container_request::ContainerRequest;
use criscope_cri::subject::ExitReason;

/// The exit code of a program that a seccomp profile ended.
const SIGSYS_EXIT_CODE: i32 = 159;

/// A program can be expected to end within this time.
const MIN_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The text of the kernel's audit lines about seccomp.
const SECCOMP_AUDIT: &str = "type=1326";

impl StepContext<'_> {
    /// The end of a container that was not asked for.
    pub(super) fn about_exit(&self, exit: &ExitRecord) -> Option<NextStep> {
        let runs_again = self.runs_again(&exit.container, exit.attempt);
        self.about_end(exit, runs_again)
    }

    /// The last end of a container that keeps ending: its next run may begin at any moment.
    pub(super) fn about_loop(&self, last: &ExitRecord) -> Option<NextStep> {
        self.about_end(last, true)
    }

    fn about_end(&self, exit: &ExitRecord, previous: bool) -> Option<NextStep> {
        if exit.node_restarted.is_some() || exit.stop_requested {
            return None;
        }
        if exit.is_out_of_memory() || exit.oom_at.is_some() {
            return self.about_memory(&exit.container, exit.request.as_deref());
        }
        match exit.reason {
            ExitReason::Evicted => self.describe(),
            // A runtime that lost its shim knows nothing of the program, and the program has said nothing about it.
            ExitReason::Unknown => Some(NextStep::ReadRuntimeLog {
                unit: self.programs.runtime_unit(None).to_owned(),
            }),
            _ if exit.code == SIGSYS_EXIT_CODE && exit.ran < Duration::from_secs(1) => {
                let pattern = SECCOMP_AUDIT;
                Some(NextStep::ReadKernelLog { pattern })
            }
            _ if exit.code == 0 => None,
            _ => self.logs(&exit.container, previous),
        }
    }

    /// A container without a limit of its own is killed when the memory of its pod or of the node runs out.
    pub(super) fn about_memory(
        &self,
        container: &str,
        request: Option<&ContainerRequest>,
    ) -> Option<NextStep> {
        if request.is_some_and(|request| request.memory == Some(0)) {
            return Some(NextStep::FindMemoryUser);
        }
        let limit = request.and_then(ContainerRequest::memory_limit);
        let container = command_word(container)?;
        Some(NextStep::RaiseMemory { container, limit })
    }

    pub(super) fn raise_cpu(&self, container: &str, millis: u32) -> Option<NextStep> {
        let container = command_word(container)?;
        Some(NextStep::RaiseCpu { container, millis })
    }

    pub(super) fn run_probe(&self, container: &str) -> Option<NextStep> {
        let path = self.container_path(container)?;
        Some(NextStep::RunProbe { path })
    }

    pub(super) fn handle_sigterm(&self, container: &str) -> Option<NextStep> {
        let container = command_word(container)?;
        Some(NextStep::HandleSigterm { container })
    }

    /// A program that was killed when its grace period was over. A short one leaves it no time, and is not the program's fault.
    pub(super) fn about_killed(&self, stop: &ContainerStop<'_>) -> Option<NextStep> {
        let killed_after = stop.killed_after?;
        if killed_after < MIN_GRACE_PERIOD {
            return None;
        }
        self.handle_sigterm(stop.container)
    }

    /// Why the kubelet killed a container. What a person changed in the pod needs no step.
    pub(super) fn about_kill(&self, container: &str, reason: KillReason) -> Option<NextStep> {
        match reason {
            KillReason::Probe(_) | KillReason::OneOf { probe: Some(_), .. } => {
                self.run_probe(container)
            }
            KillReason::PostStart(_) => {
                let path = self.container_path(container)?;
                Some(NextStep::RunPostStartHook { path })
            }
            // The events of the pod name a probe that makes no call.
            KillReason::OneOf { unseen, .. } if unseen.contains(&Some(UnseenKill::Probe)) => {
                self.describe()
            }
            KillReason::OneOf { .. }
            | KillReason::ImageChanged
            | KillReason::Resized
            | KillReason::RestartRule(_) => None,
        }
    }

    /// The end of a sandbox without a stop request.
    pub(super) fn about_sandbox_death(&self, death: SandboxDeath<'_>) -> Option<NextStep> {
        match death.end.limit {
            Some(ReachedLimit::Memory) => Some(NextStep::FindMemoryUser),
            _ => Some(NextStep::ReadRuntimeLog {
                unit: self.programs.runtime_unit(None).to_owned(),
            }),
        }
    }
}
