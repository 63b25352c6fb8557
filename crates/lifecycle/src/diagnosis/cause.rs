//! Causes of delays and failures, as data. The rules of the diagnosis find them, [`table`] has their names and weights, and `words`
//! makes the sentences.

mod table;

use std::sync::Arc;
use std::time::Duration;

use super::before::Predecessor;
use super::crash::CrashLoop;
use super::fault::FaultClass;
use super::node::{EpisodeWait, FactAt};
use super::sandbox::SandboxDeath;
use super::stopped::PodStop;
use super::syncs::WorkInGap;
use super::work::LongestWorker;
use super::{kills::KillReason, kubelet::KubeletCause};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{AwaitedContainers, ContainerOomKills, ExitRecord};
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
    },
    /// The kubelet makes no further call since it looked for an image that is missing.
    ImageMissing {
        image: MissingImage,
        since: Duration,
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
        since: Duration,
    },
    /// A start ended without a started container.
    NoContainerStarted { after: Duration },
    /// A container ends again and again.
    CrashLoop(CrashLoop<'a>),
    /// A container ended soon after its start.
    ContainerExited(&'a ExitRecord),
    /// A caller other than the kubelet stopped a container this long `ago`, and it was not started again.
    StoppedByOther {
        exit: &'a ExitRecord,
        peer: &'a Peer,
        ago: Duration,
    },
    /// An exec probe keeps failing in a container that is up.
    ProbeFails(ProbeView),
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

/// A call in flight.
#[derive(Debug)]
pub(crate) struct CallInFlight<'a> {
    pub(super) call: &'a EpisodeCall,
    /// Why the kubelet stops a container, if that is known.
    pub(super) kill_reason: Option<KillReason>,
    pub(super) work: WorkProgress<'a>,
    /// Failed calls of the episode before it.
    pub(super) failures: u32,
    pub(super) usual: Option<ComparedDuration>,
}

/// The observed work for a call in flight.
#[derive(Debug)]
pub(crate) enum WorkProgress<'a> {
    /// At work now.
    Current(LongestWorker<'a>),
    /// The longest work; it has ended.
    SoFar(LongestWorker<'a>),
    /// No work was seen. `looked`: whether processes were scanned.
    Unseen { looked: bool },
}

impl<'a> WorkProgress<'a> {
    /// The longest work that was seen.
    pub(super) fn worker(&self) -> Option<&LongestWorker<'a>> {
        match self {
            Self::Current(worker) | Self::SoFar(worker) => Some(worker),
            Self::Unseen { .. } => None,
        }
    }
}

/// All failed attempts at the same call.
#[derive(Debug)]
pub(crate) struct CallFailure<'a> {
    /// The last attempt.
    pub(super) last: &'a EpisodeCall,
    pub(super) tries: usize,
    pub(super) kind: FailureKind,
    /// The work observed for these calls.
    pub(super) work: WorkProgress<'a>,
    /// Number of later tries that were refused because the runtime still holds the name of this one.
    pub(super) refused_tries: usize,
    /// True if a later call succeeded.
    pub(super) is_resolved: bool,
    /// True if another try was due and did not come, for a reason that is not known.
    pub(super) is_not_tried_again: bool,
    pub(super) now: UnixMicros,
}

/// How a call failed.
#[derive(Debug)]
pub(crate) enum FailureKind {
    /// The caller's deadline passed, `times` times.
    DeadlinePassed { deadline: Duration, times: usize },
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
    /// The number of images, the longest pull, and the longest step within pulls.
    Pull {
        images: usize,
        longest: Option<&'a EpisodeCall>,
        layer: Option<LongestWorker<'a>>,
    },
    /// The longest time without a call, and the call after it.
    Outside {
        longest: Option<(Duration, &'a EpisodeCall)>,
        /// The kubelet's work in this time, if its spans show it.
        work: Option<WorkInGap<'a>>,
    },
    /// The number of init containers, and the name and time of the longest.
    Init {
        waits: usize,
        longest: Option<(&'a str, Duration)>,
    },
    /// A stopped container, its exit, and whether it was started again.
    Stop {
        container: Option<&'a str>,
        exit: Option<&'a ExitRecord>,
        again: bool,
    },
    /// Calls of one method.
    Calls(SlowCalls<'a>),
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
    /// Containers of the pod were started and have not ended. The CRI does not say whether more will follow.
    ContainersUp(Vec<&'a str>),
    /// One container runs, and no call followed: it is an init container, or the only container.
    OneContainerUp { container: &'a str, since: Duration },
    /// The last container of the pod has done its work.
    ContainerDone(&'a ExitRecord),
    /// A container was started again.
    ContainerUp(Option<&'a str>),
    /// Only an image was pulled.
    ImagePulled,
    /// Only a container was stopped.
    ContainerStopped(&'a str),
    /// The pod was stopped.
    PodStopped,
    /// The episode is incomplete.
    Incomplete,
}
