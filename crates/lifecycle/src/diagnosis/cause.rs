//! Causes of delays and failures, as data. The rules of the diagnosis find them, [`table`] has their names and weights, and `words`
//! makes the sentences.

mod table;

use std::sync::Arc;
use std::time::Duration;

use super::before::Predecessor;
use super::broken_off::BrokenOffCall;
use super::containers::StoppedContainers;
use super::crash::CrashLoop;
use super::evidence::RequestEvidence;
use super::fault::FaultClass;
use super::init_retries::InitRetries;
use super::late_probes::LateProbe;
use super::node::{EpisodeWait, FactAt};
use super::reasons::{StepBeforeCreate, StepBeforePull};
use super::sandbox::SandboxDeath;
use super::stopped::{HurriedStop, PodStop};
use super::syncs::WorkInGap;
use super::work::LongestWorker;
use super::{kill_reason::KillReason, kubelet::KubeletCause};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{AwaitedContainers, ContainerOomKills, ExitRecord};
use crate::kubelet::hanging_probe::HangingProbe;
use crate::kubelet::images::MissingImage;
use crate::kubelet::pulls::PullInFlight;
use crate::timeline::EpisodePhase;
use crate::usual::ComparedDuration;
use crate::view::ProbeView;
use criscope_cri::call::Peer;
use criscope_cri::units::times::UnixMicros;

pub(super) use self::table::{Relevance, Severity};

/// Why an episode took long, is incomplete, or failed. No cause contains another: a diagnosis adds others as remarks.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// A call has been in flight for long.
    CallInFlight(CallInFlight<'a>),
    /// The newest failed call that no later one made good.
    CallFails(CallFailure<'a>),
    /// A start whose sandbox was never made and whose pod was then deleted, this long `ago`.
    DeletedWithoutSandbox {
        ago: Duration,
        failure: CallFailure<'a>,
    },
    /// Failed calls that a later one made good.
    Recovered(CallFailure<'a>),
    /// The kubelet makes no further call in an incomplete start.
    NoFurtherCall {
        after: &'a EpisodeCall,
        since: Duration,
        /// What it may wait for.
        steps: Vec<StepBeforeCreate>,
    },
    /// The kubelet makes no further call since it looked for an image that is missing.
    ImageMissing {
        image: MissingImage,
        since: Duration,
        /// Why it may not be pulled.
        reasons: Vec<StepBeforePull>,
    },
    /// The kubelet makes no further call since it found the image: it waits for no other pull.
    ContainerNotCreated {
        image: Arc<str>,
        since: Duration,
        steps: Vec<StepBeforeCreate>,
    },
    /// The kubelet makes no further call while it pulls an image for another pod. `image`: the missing image of this pod, if it
    /// is known.
    WaitsForPull {
        image: Option<Arc<str>>,
        since: Duration,
        pull: PullInFlight,
    },
    /// A fact about the node that an unfinished episode waits for.
    WaitsForNode {
        fact: FactAt<'a>,
        waits: EpisodeWait<'a>,
    },
    /// Calls failed because their backend was away; a later one succeeded.
    BackendWasAway(FactAt<'a>),
    /// A call failed because criscope, the kubelet or the runtime went away during it.
    BrokenOff(BrokenOffCall<'a>),
    /// Most of the time passed between calls, while this fact held.
    NodeInGap {
        fact: FactAt<'a>,
        took: Duration,
        total: Duration,
    },
    /// Most of the time passed in one call, while this fact held.
    NodeInCall {
        fact: FactAt<'a>,
        call: &'a EpisodeCall,
        total: Duration,
    },
    /// A start waits until a container that was started has ended, or is ready: an init container.
    AwaitsContainer {
        awaited: AwaitedContainers<'a>,
        /// Since the begin or the end of its newest run.
        since: Duration,
        /// The end of its newest run, and the number of its runs that failed.
        ended: Option<(&'a ExitRecord, usize)>,
    },
    /// The pod was stopped before these containers were started; empty if their names are not known. `last`: the container that was
    /// started last.
    NeverStarted {
        missing: Vec<&'a str>,
        last: &'a str,
    },
    /// Init containers of a start failed at first.
    InitRetried(InitRetries<'a>),
    /// An exec probe failed for long before it first succeeded.
    ProbeLate(LateProbe),
    /// A start ended without a started container.
    NoContainerStarted {
        /// The last call of the start.
        last: &'a EpisodeCall,
        /// From its begin to the stop of the pod, or to now.
        after: Duration,
        /// The caller that stopped the pod.
        stopped_by: Option<&'a Peer>,
        /// What the kubelet may have waited for, if it made no call for long.
        steps: Vec<StepBeforeCreate>,
    },
    /// A container ends again and again.
    CrashLoop(CrashLoop<'a>),
    /// Other ends of a container in a crash loop than its last one, the newest of them, and their number.
    OtherExits { exit: &'a ExitRecord, times: usize },
    /// A fact about the node that holds while something else is wrong with the pod.
    NodeTrouble(FactAt<'a>),
    /// A call that took long while something else is wrong with the pod.
    SlowCall(&'a EpisodeCall),
    /// A container ended soon after its start.
    ContainerExited(&'a ExitRecord),
    /// Containers were stopped and not started again, and their pod was not stopped.
    ContainersStopped(StoppedContainers<'a>),
    /// An exec probe keeps failing in a container that is up.
    ProbeFails(ProbeView),
    /// An exec probe hangs, or hung, in the runtime.
    ProbeHangs(HangingProbe),
    /// The kernel killed processes of a container for lack of memory, the last one this long `ago`, and the container runs on.
    OomKills {
        kills: &'a ContainerOomKills,
        ago: Duration,
    },
    /// The sandbox of the pod ended without a request to stop it, this long `ago`. `is_stopped`: it was cleaned up since, but not
    /// replaced.
    SandboxDied {
        death: SandboxDeath<'a>,
        ago: Duration,
        is_stopped: bool,
    },
    /// The pod was stopped while containers ran.
    PodStopped(PodStop<'a>),
    /// Containers of the pod ended with the node, and no call came for the pod since the node was started again, at
    /// `booted`.
    EndedWithNode {
        containers: Vec<&'a str>,
        booted: UnixMicros,
    },
    /// A container or a sandbox was started again after its predecessor had ended.
    StartedAgain(Predecessor<'a>),
    /// Work or a wait of the kubelet.
    Kubelet(KubeletCause<'a>),
    /// Most of the time passed in one phase.
    SlowPhase(SlowPhase<'a>),
    /// The episode did not take long, but one of its calls took unusually long for this node.
    UnusualCall {
        call: &'a EpisodeCall,
        usual: ComparedDuration,
    },
    /// Nothing took long.
    NotSlow(NotSlow<'a>),
}

impl Cause<'_> {
    /// The end of an earlier run or sandbox that no call asked for. It still matters when its successor was stopped.
    pub(super) fn into_unexplained_end(self) -> Option<Self> {
        match self {
            Self::StartedAgain(before) if before.is_unexplained() => Some(self),
            _ => None,
        }
    }

    /// The same loop, told as over; `None` for other causes.
    pub(super) fn into_past(self) -> Option<Self> {
        match self {
            Self::CrashLoop(mut crashes) => {
                crashes.is_over = true;
                crashes.up_for = None;
                crashes.delayed_by = None;
                Some(Self::CrashLoop(crashes))
            }
            Self::Kubelet(KubeletCause::KillLoop(mut kills)) => {
                kills.is_over = true;
                Some(Self::Kubelet(KubeletCause::KillLoop(kills)))
            }
            _ => None,
        }
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct CallInFlight<'a> {
    pub(super) call: &'a EpisodeCall,
    /// Why the kubelet stops a container, if that is known.
    pub(super) kill_reason: Option<KillReason>,
    /// The call that shortened the grace period of this stop.
    pub(super) hurried: Option<HurriedStop<'a>>,
    pub(super) work: WorkProgress<'a>,
    /// The same call before, which a downtime broke off.
    pub(super) broken_off: Option<BrokenOffCall<'a>>,
    /// Failed tries of the same call before it, without that one.
    pub(super) failures: usize,
    pub(super) usual: Option<ComparedDuration>,
}

/// The observed work for a call in flight.
#[derive(Debug)]
pub(crate) enum WorkProgress<'a> {
    /// At work now.
    Current(LongestWorker<'a>),
    /// The longest work; it has ended.
    SoFar(LongestWorker<'a>),
    /// No work was seen, which shows nothing: a runtime does most of its work itself.
    Unseen,
}

impl<'a> WorkProgress<'a> {
    /// The longest work that was seen.
    pub(super) fn worker(&self) -> Option<&LongestWorker<'a>> {
        match self {
            Self::Current(worker) | Self::SoFar(worker) => Some(worker),
            Self::Unseen => None,
        }
    }
}

/// All failed attempts at the same call.
#[derive(Debug)]
pub(crate) struct CallFailure<'a> {
    /// The last attempt.
    pub(super) last: &'a EpisodeCall,
    /// Begin of the first attempt.
    pub(super) first: UnixMicros,
    pub(super) tries: usize,
    pub(super) kind: FailureKind,
    /// The work observed for these calls.
    pub(super) work: WorkProgress<'a>,
    /// Number of later tries that were refused because the runtime still holds the name of this one.
    pub(super) refused_tries: usize,
    /// True if a later call succeeded.
    pub(super) is_resolved: bool,
    /// True if the sandbox was stopped since. No further try follows.
    pub(super) is_given_up: bool,
    /// What the request for the container says about the reason.
    pub(super) evidence: Option<RequestEvidence<'a>>,
    /// True if another try was due and did not come, for a reason that is not known.
    pub(super) is_not_tried_again: bool,
    pub(super) now: UnixMicros,
}

/// How a call failed.
#[derive(Debug)]
pub(crate) enum FailureKind {
    /// The caller's deadline passed, `times` times.
    DeadlinePassed { deadline: Duration, times: usize },
    /// The caller's deadline passed `times` times while a CNI plugin worked, if it is known which.
    NetworkHung {
        plugin: Option<String>,
        deadline: Duration,
        times: usize,
    },
    /// The runtime itself gave up, before the caller's deadline or without one.
    RuntimeGaveUp {
        after: Duration,
        deadline: Option<Duration>,
    },
    /// The runtime refused it because an earlier try holds the name, and why that try failed is not known.
    NameReserved { times: usize },
    /// The caller cancelled, `times` times.
    CallerCancelled { longest: Duration, times: usize },
    /// A fault was injected on purpose.
    Injected,
    /// A CNI plugin, if it is known which, or the network in general.
    Network {
        plugin: Option<String>,
        fault: Option<FaultClass>,
    },
    /// The image of the sandbox's own container.
    PauseImage { fault: Option<FaultClass> },
    /// Any other error, with the class that its text proves.
    Error { fault: Option<FaultClass> },
}

impl FailureKind {
    /// The class that the error text proves.
    pub(super) fn fault(&self) -> Option<FaultClass> {
        match self {
            Self::Network { fault, .. } | Self::PauseImage { fault } | Self::Error { fault } => {
                *fault
            }
            _ => None,
        }
    }

    /// Returns whether the time ran out.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::DeadlinePassed { .. } | Self::RuntimeGaveUp { .. }
        )
    }
}

/// The largest part of an episode's duration.
#[derive(Debug)]
pub(crate) struct SlowPhase<'a> {
    pub(super) took: Duration,
    pub(super) total: Duration,
    pub(super) phase: EpisodePhase,
    pub(super) detail: SlowDetail<'a>,
    /// The longest call of the phase, compared with the usual duration.
    pub(super) usual: Option<(&'a EpisodeCall, ComparedDuration)>,
}

/// Details of the slow phase.
#[derive(Debug)]
pub(crate) enum SlowDetail<'a> {
    /// The longest CNI plugin, if one was seen.
    Network(Option<LongestWorker<'a>>),
    /// The containers were frozen.
    Checkpoint,
    /// The number of images, the longest pull, and the longest step within pulls.
    Pull {
        images: usize,
        longest: Option<&'a EpisodeCall>,
        layer: Option<LongestWorker<'a>>,
    },
    /// The longest time without a call, and the call after it.
    Outside {
        longest: Option<(Duration, &'a EpisodeCall)>,
        /// What the kubelet does in such a gap, if the calls around it leave little choice.
        steps: Option<StepsInGap<'a>>,
        /// The kubelet's work in this time, if its spans show it.
        work: Option<WorkInGap<'a>>,
        /// The container after whose start the longest time began, if it has not ended in it and another one was created then.
        after: Option<&'a str>,
    },
    /// The number of init containers, and the name and time of the longest.
    Init {
        containers: usize,
        longest: Option<(&'a str, Duration)>,
    },
    /// A stopped container, and its exit.
    Stop {
        container: Option<&'a str>,
        exit: Option<&'a ExitRecord>,
    },
    /// Calls of one method.
    Calls(SlowCalls<'a>),
}

/// What the kubelet does without a call between these two calls (`pkg/kubelet/images/image_manager.go`, `EnsureImageExists`, and
/// `pkg/kubelet/kuberuntime/kuberuntime_container.go`, `startContainer`, 1.36).
#[derive(Clone, Debug)]
pub(crate) enum StepsInGap<'a> {
    /// Before the first pull of an image: it asks its credential providers for a login, notes the pull on its disk, and waits for its
    /// turn. A back-off follows a failed pull only.
    BeforePull,
    /// After the start of this container, in the same sync of the pod: it runs the container's postStart hook. An exec is a call.
    PostStart(&'a str),
    /// Before a container was created, for long: one of these steps.
    BeforeCreate(Vec<StepBeforeCreate>),
}

/// Calls of one method that took most of the time.
#[derive(Debug)]
pub(crate) struct SlowCalls<'a> {
    pub(super) name: &'static str,
    pub(super) longest: Option<&'a EpisodeCall>,
    pub(super) count: usize,
    /// The worker that accounts for most of the time.
    pub(super) worker: Option<LongestWorker<'a>>,
    /// True if any work was seen.
    pub(super) seen: bool,
}

/// An episode that was not slow.
#[derive(Debug)]
pub(crate) struct NotSlow<'a> {
    pub(super) took: Duration,
    pub(super) end: EpisodeOutcome<'a>,
}

/// Outcome of an episode.
#[derive(Debug)]
pub(crate) enum EpisodeOutcome<'a> {
    /// Running containers of the pod, and how the others ended; init containers are left out. The CRI does not say whether more
    /// will follow.
    Containers {
        up: Vec<&'a str>,
        ended: Vec<&'a ExitRecord>,
    },
    /// One container runs, and no call followed: it is an init container, or the only container.
    OneContainerUp { container: &'a str, since: Duration },
    /// Only an image was pulled.
    ImagePulled,
    /// Only a container was stopped.
    ContainerStopped(&'a str),
    /// The pod was stopped.
    PodStopped,
    /// The episode is incomplete.
    Incomplete,
}
