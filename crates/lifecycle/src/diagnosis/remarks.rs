//! A diagnosis: the cause that matters most, what is told after it, and what to do. Rules that find a worse cause put it first.

use std::iter;
use std::time::Duration;

use super::before::{Predecessor, PreviousRun};
use super::cause::{Cause, EpisodeOutcome, NotSlow, Relevance, Severity, SlowDetail, SlowPhase};
use super::kubelet::KubeletCause;
use super::node::FactAt;
use crate::episode_call::EpisodeCall;
use crate::node::PressureShare;
use criscope_cri::call::InjectedFault;
use criscope_cri::call::episode::Kind;

/// Why an episode took long, is incomplete, or failed; its `Display` is the headline.
#[derive(Debug)]
pub(crate) struct Diagnosis<'a> {
    /// The cause that matters most.
    pub(super) cause: Cause<'a>,
    /// What is told besides, in this order.
    pub(super) remarks: Vec<Remark<'a>>,
    pub(crate) next: Option<NextStep>,
}

/// What is told besides the cause.
#[derive(Debug)]
pub(crate) enum Remark<'a> {
    /// A cause that matters less.
    Also(Cause<'a>),
    /// The duration of a start whose container is not up any more.
    StartTook(Duration),
    /// The end of the wait for another run, in an episode with this outcome.
    UpAgain {
        run: PreviousRun<'a>,
        outcome: NotSlow<'a>,
    },
    /// The outcome of an episode in which nothing was slow, but which is not called good.
    Outcome(NotSlow<'a>),
    /// The end of an episode of this kind, and its duration.
    Ended { kind: Kind, took: Duration },
    /// criscope was down just before the first call of a container of an unknown pod.
    BeganUnseen(FactAt<'a>),
    /// The number of pods that started at the same time.
    ConcurrentStarts(usize),
    /// The resource for which tasks of the node waited.
    ShortOf(PressureShare),
    /// The disk of the images was nearly full.
    FullDisk(FactAt<'a>),
    /// The longest fault that was injected on purpose. `more`: the number of other calls with one.
    InjectedFault {
        fault: InjectedFault,
        call: &'a EpisodeCall,
        more: usize,
    },
}

/// What to do about a cause, with the names filled in; its `Display` is the text.
#[derive(Debug)]
pub(crate) enum NextStep {}

impl<'a> From<Cause<'a>> for Diagnosis<'a> {
    fn from(cause: Cause<'a>) -> Self {
        Self {
            next: cause.row().next,
            cause,
            remarks: Vec::new(),
        }
    }
}

impl<'a> Diagnosis<'a> {
    /// The same diagnosis after a cause that matters more.
    pub(super) fn led_by(self, lead: Cause<'a>) -> Self {
        let remark = match (&lead, self.cause) {
            (Cause::ContainerExited(_), Cause::NotSlow(quick)) => Remark::StartTook(quick.took),
            (Cause::StartedAgain(Predecessor::ContainerRun(run)), Cause::NotSlow(outcome)) => {
                Remark::UpAgain { run: *run, outcome }
            }
            (
                Cause::StartedAgain(_)
                | Cause::OomKills { .. }
                | Cause::ProbeFails(_)
                | Cause::ProbeHangs(_),
                Cause::NotSlow(outcome),
            ) => Remark::Outcome(outcome),
            (Cause::PodStopped(stop), cause) if only_says_how_containers_ended(&cause) => {
                let (kind, took) = (Kind::Stop, stop.took);
                Remark::Ended { kind, took }
            }
            (_, cause) => Remark::Also(cause),
        };
        Self {
            remarks: iter::once(remark).chain(self.remarks).collect(),
            ..Self::from(lead)
        }
    }

    /// All causes, the one that matters most first.
    pub(super) fn causes(&self) -> impl Iterator<Item = &Cause<'a>> {
        let others = self.remarks.iter().filter_map(|remark| match remark {
            Remark::Also(cause) => Some(cause),
            _ => None,
        });
        iter::once(&self.cause).chain(others)
    }

    /// The stable name of this kind of cause.
    pub(crate) fn name(&self) -> &'static str {
        self.cause.row().name
    }

    /// Returns whether the pod has a problem now. Slow or ended is no problem.
    pub(super) fn is_problem(&self) -> bool {
        self.cause.row().severity == Severity::Failing
    }

    /// The containers that are up, if this diagnosis shows no problem with them.
    pub(super) fn up(&self) -> Vec<&'a str> {
        let is_well = self.causes().all(|cause| {
            matches!(
                cause,
                Cause::StartedAgain(_)
                    | Cause::OomKills { .. }
                    | Cause::UnusualCall { .. }
                    | Cause::NotSlow(_)
            )
        });
        match self.outcome().filter(|_| is_well) {
            Some(EpisodeOutcome::ContainersUp(names)) => names.clone(),
            Some(EpisodeOutcome::OneContainerUp { container, .. }) => vec![container],
            Some(EpisodeOutcome::ContainerUp(name)) => name.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The outcome of an episode that was not slow.
    fn outcome(&self) -> Option<&EpisodeOutcome<'a>> {
        let told = self.remarks.iter().find_map(|remark| match remark {
            Remark::UpAgain { outcome, .. } | Remark::Outcome(outcome) => Some(outcome),
            _ => None,
        });
        let of_cause = self.causes().find_map(|cause| match cause {
            Cause::NotSlow(outcome) => Some(outcome),
            _ => None,
        });
        told.or(of_cause).map(|quick| &quick.end)
    }

    /// Returns whether the sentence says how a run of a container or a sandbox ended.
    pub(super) fn says_how_a_run_ended(&self) -> bool {
        matches!(
            &self.cause,
            Cause::StartedAgain(_)
                | Cause::ContainerExited(_)
                | Cause::EndedWithNode { .. }
                | Cause::Kubelet(KubeletCause::ContainerKilled { .. })
                | Cause::NotSlow(NotSlow {
                    end: EpisodeOutcome::ContainerDone(_),
                    ..
                })
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

    /// Returns whether this is a stop that had neither a failure nor a runtime that did not answer.
    pub(super) fn is_fine_stop(&self) -> bool {
        self.cause.row().severity <= Severity::Slow && !self.has_injected_fault()
    }

    fn has_injected_fault(&self) -> bool {
        let mut remarks = self.remarks.iter();
        remarks.any(|remark| matches!(remark, Remark::InjectedFault { .. }))
    }
}

/// Returns whether the sentence on a stop only says how the containers ended.
fn only_says_how_containers_ended(cause: &Cause<'_>) -> bool {
    matches!(
        cause,
        Cause::Kubelet(KubeletCause::ContainerStopped { .. })
            | Cause::SlowPhase(SlowPhase {
                detail: SlowDetail::Stop { .. },
                ..
            })
            | Cause::NotSlow(_)
    )
}
