//! A diagnosis: the cause that matters most, and remarks on it. Rules that find a worse cause put it first.

use std::iter;
use std::time::Duration;

use super::before::{Predecessor, PreviousRun};
use super::cause::{Cause, EpisodeOutcome, NotSlow, Relevance, Severity, SlowDetail};
use super::checkpoints::RecentCheckpoint;
use super::interventions::InterventionBefore;
use super::kubelet::KubeletCause;
use super::new_image::DownForImage;
use super::node::FactAt;
use super::origin::FaultOrigin;
use crate::episode_call::EpisodeCall;
use crate::episode_store::ExitRecord;
use crate::node::PressureShare;
use crate::view::PodState;
use criscope_cri::call::episode::Kind;
use criscope_cri::call::{InjectedFault, Peer};
use criscope_cri::container_request::MountedVolume;

/// Why an episode took long, is incomplete, or failed; its `Display` is the headline.
#[derive(Debug)]
pub(crate) struct Diagnosis<'a> {
    /// The cause that matters most.
    pub(super) cause: Cause<'a>,
    /// What is told besides, in this order.
    pub(super) remarks: Vec<Remark<'a>>,
}

/// What is told besides the cause.
#[derive(Debug)]
pub(crate) enum Remark<'a> {
    /// A cause that matters less.
    Also(Cause<'a>),
    /// A container that has done its work had failed before, so often; the last time so.
    FailedBefore { exit: &'a ExitRecord, times: usize },
    /// Another fault of the pod, which matters as much or less.
    SecondFault(Cause<'a>),
    /// The duration of a start whose container is not up any more.
    StartTook(Duration),
    /// The duration of the stop of a pod that still exists.
    StopTook(Duration),
    /// A container is down while its image is pulled.
    DownForImage(DownForImage<'a>),
    /// What others did to the container before.
    Intervened(InterventionBefore<'a>),
    /// The pod, or a container of it, is or was frozen for a checkpoint.
    Checkpointed(RecentCheckpoint<'a>),
    /// The cause is about a container that was added to the running pod.
    OnlyEphemeral,
    /// The end of the wait for another run.
    UpAgain(PreviousRun<'a>),
    /// The outcome of an episode in which nothing was slow, but which is not called good.
    Outcome(NotSlow<'a>),
    /// The ends of the containers of a slow start, which have done their work.
    ContainersEnded(Vec<&'a ExitRecord>),
    /// The caller that stopped the pod after a failure, this long `ago`.
    PodStopped { by: &'a Peer, ago: Duration },
    /// The end of an episode of this kind, and its duration.
    Ended { kind: Kind, took: Duration },
    /// The volume that may hide the command of a probe.
    HiddenBy(&'a MountedVolume),
    /// The cgroup driver that criscope told the kubelet in place of this runtime.
    AnsweredDriver { runtime: &'a str, driver: &'a str },
    /// The CPU limit of a container whose work is slow, in thousandths of a CPU.
    CpuLimit { container: &'a str, millis: u32 },
    /// The CPU limit of a pod whose sandbox is slow to make, in thousandths of a CPU.
    PodCpuLimit { millis: u32 },
    /// criscope was down just before the first call of a container of an unknown pod.
    BeganUnseen(FactAt<'a>),
    /// No kubelet was connected just before it saw the pod.
    BeganWithKubelet(FactAt<'a>),
    /// The resource for which tasks of the node waited.
    ShortOf(PressureShare),
    /// The number of `retries` that waited for a call which the kubelet had given up at this deadline.
    RetryJoined { deadline: Duration, retries: usize },
    /// The longest fault that was injected on purpose. `more`: the number of other calls with one.
    InjectedFault {
        fault: InjectedFault,
        call: &'a EpisodeCall,
        more: usize,
    },
}

impl<'a> From<Cause<'a>> for Diagnosis<'a> {
    fn from(cause: Cause<'a>) -> Self {
        Self {
            cause,
            remarks: Vec::new(),
        }
    }
}

impl<'a> Diagnosis<'a> {
    /// The same diagnosis after a cause that matters more.
    pub(super) fn led_by(self, lead: Cause<'a>) -> Self {
        let delayed = delayed_run(&lead, &self.cause);
        let remark = match (&lead, self.cause) {
            (Cause::ContainerExited(_), Cause::NotSlow(quick)) => Remark::StartTook(quick.took),
            (Cause::StartedAgain(Predecessor::ContainerRun(run)), Cause::NotSlow(_)) => {
                Remark::UpAgain(*run)
            }
            (
                Cause::StartedAgain(_)
                | Cause::OomKills { .. }
                | Cause::InitRetried(_)
                | Cause::ProbeLate(_)
                | Cause::ProbeFails(_)
                | Cause::ProbeHangs(_)
                | Cause::UnusualCall { .. },
                Cause::NotSlow(outcome),
            ) => Remark::Outcome(outcome),
            (Cause::PodStopped(stop), cause) if stop.is_kept && is_said_by_stop(&cause) => {
                Remark::StopTook(stop.took)
            }
            (Cause::PodStopped(stop), cause) if is_said_by_stop(&cause) => {
                let (kind, took) = (Kind::Stop, stop.took);
                Remark::Ended { kind, took }
            }
            (_, cause) => Remark::Also(cause),
        };
        // The end of the container is the lead: it is not told again as the outcome of the start.
        let remarks = self
            .remarks
            .into_iter()
            .map(|remark| match (&lead, remark) {
                (Cause::ContainerExited(_), Remark::Outcome(quick)) => {
                    Remark::StartTook(quick.took)
                }
                (_, remark) => remark,
            });
        let delayed = delayed.map(Remark::UpAgain).into_iter();
        Self {
            remarks: delayed.chain(iter::once(remark)).chain(remarks).collect(),
            ..Self::from(lead)
        }
    }

    /// All causes, the one that matters most first.
    pub(super) fn causes(&self) -> impl Iterator<Item = &Cause<'a>> {
        let others = self.remarks.iter().filter_map(|remark| match remark {
            Remark::Also(cause) | Remark::SecondFault(cause) => Some(cause),
            _ => None,
        });
        iter::once(&self.cause).chain(others)
    }

    /// The stable name of this kind of cause.
    pub(crate) fn name(&self) -> &'static str {
        self.cause.row().name
    }

    /// The state that this means for the pod, if one of its causes decides it.
    pub(crate) fn state(&self) -> Option<PodState> {
        let of_cause = self.causes().find_map(|cause| cause.row().state);
        of_cause.or_else(|| self.outcome().and_then(EpisodeOutcome::state))
    }

    /// The outcome of an episode that was not slow.
    fn outcome(&self) -> Option<&EpisodeOutcome<'a>> {
        let told = self.remarks.iter().find_map(|remark| match remark {
            Remark::Outcome(outcome) => Some(outcome),
            _ => None,
        });
        let of_cause = self.causes().find_map(|cause| match cause {
            Cause::NotSlow(outcome) => Some(outcome),
            _ => None,
        });
        told.or(of_cause).map(|quick| &quick.end)
    }

    /// Whose fault the cause is; `None` if nothing is the matter, or a person did it.
    pub(crate) fn origin(&self) -> Option<FaultOrigin> {
        self.cause.row().origin
    }

    /// Returns whether the pod has a problem now. Slow or ended is no problem.
    pub(super) fn is_problem(&self) -> bool {
        self.cause.row().severity >= Severity::Impaired
    }

    /// Returns whether a container of the pod is not started yet.
    pub(super) fn awaits_container(&self) -> bool {
        matches!(self.cause, Cause::AwaitsContainer { .. })
    }

    /// Returns whether the sentence says how a run of a container or a sandbox ended.
    pub(super) fn says_how_a_run_ended(&self) -> bool {
        matches!(
            &self.cause,
            Cause::StartedAgain(_)
                | Cause::ContainerExited(_)
                | Cause::EndedWithNode { .. }
                | Cause::Kubelet(KubeletCause::ContainerKilled { .. })
        ) || matches!(
            &self.cause,
            Cause::NotSlow(NotSlow { end: EpisodeOutcome::Containers { up, ended }, .. })
                if up.is_empty() && !ended.is_empty()
        )
    }

    /// Returns whether the cause no longer matters once the pod was stopped while its containers ran.
    pub(super) fn is_past_when_stopped(&self) -> bool {
        self.cause.row().relevance != Relevance::Always
    }

    /// Returns whether the cause no longer matters once the pod is gone. An injected fault always does.
    pub(super) fn is_past_when_gone(&self) -> bool {
        self.cause.row().relevance == Relevance::UntilGone && !self.has_injected_fault()
    }

    /// Returns whether a start was slow whose containers have not done their work.
    pub(super) fn is_slow_start_of_running(&self) -> bool {
        let mut remarks = self.remarks.iter();
        matches!(self.cause, Cause::SlowPhase(_))
            && !remarks.any(|remark| matches!(remark, Remark::ContainersEnded(_)))
    }

    /// Returns whether this tells what took long in a start, or failed at first.
    pub(super) fn is_about_slow_start(&self) -> bool {
        matches!(
            &self.cause,
            Cause::SlowPhase(_)
                | Cause::Recovered(_)
                | Cause::BackendWasAway(_)
                | Cause::BrokenOff(_)
                | Cause::NodeInGap { .. }
                | Cause::NodeInCall { .. }
                | Cause::InitRetried(_)
                | Cause::Kubelet(
                    KubeletCause::BeforeFirstCall { .. }
                        | KubeletCause::PullQueue { .. }
                        | KubeletCause::PostStart { .. }
                )
        )
    }

    /// Returns whether this is a stop that had neither a failure nor a runtime that did not answer.
    pub(super) fn is_fine_stop(&self) -> bool {
        self.cause.row().severity <= Severity::Slow && !self.has_injected_fault()
    }

    fn has_injected_fault(&self) -> bool {
        let mut remarks = self.remarks.iter();
        remarks.any(|remark| matches!(remark, Remark::InjectedFault { .. }))
    }
}

/// The run that a downtime delayed, if what took the time of its restart is told besides.
fn delayed_run<'a>(lead: &Cause<'a>, cause: &Cause<'a>) -> Option<PreviousRun<'a>> {
    let Cause::StartedAgain(Predecessor::ContainerRun(run)) = lead else {
        return None;
    };
    let is_told = matches!(cause, Cause::NotSlow(_));
    (run.delayed_by.is_some() && !is_told).then_some(*run)
}

/// Returns whether the sentence on a stopped pod leaves nothing to say for this cause: how its containers ended, and the time that
/// people took between two calls.
fn is_said_by_stop(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::Kubelet(KubeletCause::ContainerStopped { .. }) | Cause::NotSlow(_) => true,
        Cause::SlowPhase(slow) => match &slow.detail {
            SlowDetail::Stop { .. } => true,
            SlowDetail::Outside {
                longest: Some((_, call)),
                ..
            } => !call.peer.is_kubelet(),
            _ => false,
        },
        _ => false,
    }
}
