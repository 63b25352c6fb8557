//! The step of each cause. The matches are exhaustive, so that a new cause needs a decision.

use super::{NextStep, StepContext};
use crate::diagnosis::before::Predecessor;
use crate::diagnosis::broken_off::RetryState;
use crate::diagnosis::cause::{Cause, EpisodeOutcome, SlowDetail, SlowPhase};
use crate::diagnosis::remarks::{Diagnosis, Remark};
use crate::episode_store::{ExitRecord, SIGKILL_EXIT_CODE};
use crate::process_scanner::WorkKind;

impl Diagnosis<'_> {
    /// What to do about the cause that leads.
    pub(crate) fn next_step(&self, context: &StepContext<'_>) -> Option<NextStep> {
        let step = context
            .about_cause(&self.cause)
            .or_else(|| self.about_remarks(context))?;
        (!context.is_gone || !step.needs_pod()).then_some(step)
    }

    /// What to do about the reason that a remark gives for a slow cause.
    fn about_remarks(&self, context: &StepContext<'_>) -> Option<NextStep> {
        if !self.is_slowness() {
            return None;
        }
        self.remarks.iter().find_map(|remark| match remark {
            Remark::InjectedFault { .. } => Some(NextStep::ClearFaults),
            Remark::CpuLimit { container, millis } => context.raise_cpu(container, *millis),
            Remark::ShortOf(share) => Some(match share.resource {
                "cpu" => NextStep::FindCpuUser,
                "memory" => NextStep::FindMemoryUser,
                _ => NextStep::FindDiskUser,
            }),
            _ => None,
        })
    }

    /// Returns whether the cause is that something takes long.
    fn is_slowness(&self) -> bool {
        matches!(
            self.cause,
            Cause::CallInFlight(_)
                | Cause::SlowPhase(_)
                | Cause::UnusualCall { .. }
                | Cause::AwaitsContainer { .. }
        )
    }
}

impl StepContext<'_> {
    fn about_cause(&self, cause: &Cause<'_>) -> Option<NextStep> {
        match cause {
            Cause::CallInFlight(call) => self.about_call_in_flight(call),
            Cause::CallFails(failure) => self.about_failure(failure),
            Cause::NoFurtherCall { .. }
            | Cause::ContainerNotCreated { .. }
            | Cause::NoContainerStarted {
                stopped_by: None, ..
            } => self.describe(),
            Cause::ImageMissing { image, .. } => self.about_missing_image(image),
            Cause::WaitsForPull { .. } => Some(NextStep::PullInParallel),
            Cause::WaitsForNode { fact, .. } | Cause::NodeTrouble(fact) => {
                self.about_fact(fact.fact)
            }
            Cause::NodeInGap { fact, .. } | Cause::NodeInCall { fact, .. } => {
                self.about_fact(fact.fact)
            }
            Cause::BrokenOff(broken_off) => match broken_off.retry {
                RetryState::Succeeded => None,
                _ => self.about_fact(broken_off.fact.fact),
            },
            Cause::AwaitsContainer { awaited, ended, .. } => match ended {
                Some((exit, _)) => self.about_exit(exit),
                None => self.logs(awaited.last, false),
            },
            Cause::InitRetried(retries) => {
                let retried = retries.containers.first()?;
                self.logs(retried.container, true)
            }
            Cause::CrashLoop(crashes) if crashes.is_over => None,
            Cause::CrashLoop(crashes) => self.about_loop(crashes.last),
            Cause::ContainerExited(exit) | Cause::OtherExits { exit, .. } => self.about_exit(exit),
            Cause::ContainersStopped(stopped) => {
                self.about_kill(stopped.names.first()?, stopped.reason?)
            }
            Cause::ProbeFails(probe) => self.run_probe(&probe.container),
            Cause::ProbeHangs(probe) if probe.ended_ago.is_some() => None,
            Cause::ProbeHangs(_) => Some(NextStep::FindBlockedProcesses),
            Cause::OomKills { kills, .. } => {
                self.about_memory(&kills.container.name, kills.request.as_deref())
            }
            Cause::SandboxDied { death, .. } => self.about_sandbox_death(*death),
            Cause::EndedWithNode { .. } => Some(self.check_kubelet()),
            Cause::StartedAgain(Predecessor::ContainerRun(run)) => match (run.stopped_by, run.exit)
            {
                (Some(_), _) => self.about_kill(run.container, run.kill_reason?),
                (None, Some(exit)) => self.about_exit(exit),
                (None, None) => None,
            },
            Cause::StartedAgain(Predecessor::Sandbox(replaced)) => {
                match (replaced.death, replaced.downtime) {
                    (Some(death), _) => self.about_sandbox_death(death),
                    (None, Some(fact)) => self.about_fact(fact),
                    (None, None) => None,
                }
            }
            Cause::PodStopped(stop) => {
                let mut ends = stop.ends.iter().filter_map(|end| end.stop);
                ends.find_map(|stop| self.about_killed(&stop))
            }
            Cause::Kubelet(cause) => self.about_kubelet(cause),
            Cause::SlowPhase(slow) => self.about_slow_phase(slow),
            Cause::NotSlow(quick) => match &quick.end {
                EpisodeOutcome::Containers { up, ended } if up.is_empty() => {
                    let mut own = ended.iter().filter(|exit| !exit.stop_requested);
                    self.about_exit(own.find(|exit| exit.code != 0)?)
                }
                _ => None,
            },
            // Over and well, or stopped by a person, or slow for a reason that cannot be changed here.
            Cause::DeletedWithoutSandbox { .. }
            | Cause::Recovered(_)
            | Cause::BackendWasAway(_)
            | Cause::NeverStarted { .. }
            | Cause::NoContainerStarted {
                stopped_by: Some(_),
                ..
            }
            | Cause::ProbeLate(_)
            | Cause::SlowCall(_)
            | Cause::UnusualCall { .. } => None,
        }
    }

    fn about_slow_phase(&self, slow: &SlowPhase<'_>) -> Option<NextStep> {
        match &slow.detail {
            SlowDetail::Init { longest, .. } => self.logs((*longest)?.0, false),
            SlowDetail::Stop { container, exit } => {
                let killed = exit.filter(|exit| was_killed_at_stop(exit))?;
                self.handle_sigterm(container.unwrap_or(&killed.container))
            }
            SlowDetail::Calls(calls) => {
                let worker = calls.worker.as_ref()?;
                match worker.kind {
                    WorkKind::Blocked => Some(NextStep::FindBlockedProcesses),
                    WorkKind::Injected => Some(NextStep::ClearFaults),
                    _ => None,
                }
            }
            SlowDetail::Network(_)
            | SlowDetail::Pull { .. }
            | SlowDetail::Outside { .. }
            | SlowDetail::Checkpoint => None,
        }
    }
}

/// Returns whether a container did not end at the first signal.
fn was_killed_at_stop(exit: &ExitRecord) -> bool {
    exit.stop_requested && exit.code == SIGKILL_EXIT_CODE
}
