//! What the rules found out: the cause of a delay or failure, as data. `words` makes the sentence.

mod names;

use std::sync::Arc;

use super::before::Before;
use super::crash::CrashLoop;
use super::fault::Fault;
use super::node::Waits;
use super::sandbox::Death;
use super::stopped::PodStop;
use super::syncs::InGap;
use super::work::Worker;
use super::{kills::KillReason, kubelet::KubeletCause};
use crate::call::episode::Kind;
use crate::lifecycle::episode_call::EpisodeCall;
use crate::lifecycle::episode_store::{Awaited, Exit, OomKills};
use crate::lifecycle::kubelet::images::Absent;
use crate::lifecycle::kubelet::pulls::Pulling;
use crate::lifecycle::node::{NodeFact, PressureShare};
use crate::lifecycle::timeline::EpisodePhase;
use crate::lifecycle::usual::{CROWD, Compared};
use crate::lifecycle::view::Probe;

/// Why an episode took long, is incomplete, or failed; its `Display` is the headline. Durations in milliseconds, times of
/// day in microseconds since 1970.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// A call has been in flight for long.
    InFlight(InFlight<'a>),
    /// The newest failed call that no later one made good.
    Failing(Failure<'a>),
    /// The same of a start whose sandbox was never made, after which its pod was deleted; how long ago, in microseconds.
    Deleted { ago: u64, failure: Failure<'a> },
    /// Failed calls that a later one made good.
    Recovered {
        failure: Failure<'a>,
        kind: Kind,
        took: f64,
    },
    /// The kubelet makes no further call in an incomplete start.
    Silent { after: &'a EpisodeCall, since: f64 },
    /// The same since it looked for an image that is absent.
    ImageAbsent { image: Absent, since: f64 },
    /// The same while it pulls an image for another pod; the one that is absent, if that is known.
    PullWaits {
        image: Option<Arc<str>>,
        since: f64,
        pull: Pulling,
    },
    /// A fact about the node that an unfinished episode waits for.
    NodeBlocks {
        fact: &'a NodeFact,
        waits: Waits<'a>,
        now: u64,
    },
    /// Calls failed because their backend was away; a later one succeeded.
    BackendWasAway {
        fact: &'a NodeFact,
        kind: Kind,
        took: f64,
        now: u64,
    },
    /// Most of the time passed between calls, while this held.
    NodeInGap {
        fact: &'a NodeFact,
        took: f64,
        of: f64,
        now: u64,
    },
    /// Most of the time passed in this call, while this held.
    NodeInCall {
        fact: &'a NodeFact,
        call: &'a EpisodeCall,
        of: f64,
        now: u64,
    },
    /// A cause, and what the node was like meanwhile.
    Beside {
        cause: Box<Cause<'a>>,
        beside: Beside<'a>,
    },
    /// A start waits until a container that was started has ended, or is ready: an init container.
    Awaiting { awaited: Awaited<'a>, since: f64 },
    /// A cause that does not tell of faults injected on purpose: the call that one held longest, and the number of other
    /// calls with one.
    Injected {
        cause: Box<Cause<'a>>,
        call: &'a EpisodeCall,
        more: usize,
    },
    /// A start ended without a started container.
    GivenUp { after: f64 },
    /// A container ends again and again.
    CrashLoop(CrashLoop<'a>),
    /// A container ended soon after its start; and what is known besides.
    Exited {
        exit: &'a Exit,
        then: Box<Cause<'a>>,
    },
    /// An exec probe keeps failing in a container that is up.
    ProbeFails { probe: Probe, then: Box<Cause<'a>> },
    /// The kernel killed a process of a container that runs on, for lack of memory; how long ago the last time, in microseconds; and
    /// what is known besides.
    OomKills {
        kills: &'a OomKills,
        ago: u64,
        then: Box<Cause<'a>>,
    },
    /// The sandbox of the pod has ended without a request to stop it; how long ago, in microseconds. `is_stopped`: it was cleaned up
    /// since, but not replaced.
    SandboxDied {
        death: Death<'a>,
        ago: u64,
        is_stopped: bool,
    },
    /// The pod was stopped while containers ran.
    PodStopped(PodStop<'a>),
    /// Containers of the pod ended with the node, and no call came for the pod since it was started again, at `booted` in microseconds since
    /// 1970.
    EndedWithNode {
        containers: Vec<&'a str>,
        booted: u64,
    },
    /// What runs was started again: why, and what is known besides.
    Again {
        before: Before<'a>,
        then: Box<Cause<'a>>,
    },
    /// What the kubelet did, or waited for.
    Kubelet(KubeletCause<'a>),
    /// Most of the time passed there.
    Slow(Slow<'a>),
    /// It did not take long, but a call took unusually long for this node.
    Unusual {
        call: &'a EpisodeCall,
        usual: Compared,
        end: Quick<'a>,
    },
    /// Nothing took long.
    Quick(Quick<'a>),
}

/// What the node was like during an episode.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    /// criscope was down just before the first call of a container of an unknown pod.
    pub(super) unseen: Option<&'a NodeFact>,
    /// So many pods started at the same time, if they were many.
    pub(super) starts: Option<usize>,
    /// What tasks of the node waited for.
    pub(super) short: Option<PressureShare>,
    /// The disk of the images was nearly full.
    pub(super) full: Option<&'a NodeFact>,
    pub(super) now: u64,
}

impl Beside<'_> {
    /// Returns whether there is nothing to add.
    pub(super) fn is_nothing(&self) -> bool {
        self.unseen.is_none()
            && self.starts.is_none()
            && self.short.is_none()
            && self.full.is_none()
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    pub(super) call: &'a EpisodeCall,
    /// Why the kubelet stops a container, if that is known.
    pub(super) kills_for: Option<KillReason>,
    pub(super) work: Progress<'a>,
    /// Failed calls of the episode before it.
    pub(super) failures: u32,
    pub(super) usual: Option<Compared>,
}

/// The observed work for a call in flight.
#[derive(Debug)]
pub(crate) enum Progress<'a> {
    /// At work now.
    Now(Worker<'a>),
    /// The longest work; it has ended.
    SoFar(Worker<'a>),
    /// None was seen; `looked`: and processes were scanned.
    Unseen { looked: bool },
}

/// All failed attempts at the same call.
#[derive(Debug)]
pub(crate) struct Failure<'a> {
    /// The last of them.
    pub(super) last: &'a EpisodeCall,
    pub(super) tries: usize,
    pub(super) how: How,
    /// The work observed for these calls.
    pub(super) work: Progress<'a>,
    /// Later tries that were refused because the runtime still holds the name of this one.
    pub(super) refused: usize,
    /// Whether a later call succeeded.
    pub(super) past: bool,
    /// Whether another try was due and did not come, for a reason that is not known.
    pub(super) is_not_tried_again: bool,
    pub(super) now: u64,
}

/// How a call failed.
#[derive(Debug)]
pub(crate) enum How {
    /// The caller's deadline passed, so many times.
    Late { deadline: f64, times: usize },
    /// The runtime itself gave up, before the caller's deadline or without one.
    GaveUp { after: f64, deadline: Option<f64> },
    /// The runtime refused it because an earlier try holds the name, and why that try failed is not known.
    Reserved { times: usize },
    /// The caller cancelled, so many times.
    Cancelled { longest: f64, times: usize },
    /// A fault was injected on purpose.
    Injected,
    /// A CNI plugin, if it is known which, or the network in general.
    Network {
        plugin: Option<String>,
        fault: Option<Fault>,
    },
    /// The image of the sandbox's own container.
    PauseImage { fault: Option<Fault> },
    /// Any other error, and what its text proves.
    Error { fault: Option<Fault> },
}

impl How {
    /// What the error text proves.
    pub(super) fn fault(&self) -> Option<Fault> {
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
pub(crate) struct Slow<'a> {
    pub(super) took: f64,
    pub(super) of: f64,
    pub(super) phase: EpisodePhase,
    pub(super) what: What<'a>,
    /// The longest call of that part, beside what is usual.
    pub(super) usual: Option<(&'a EpisodeCall, Compared)>,
}

/// What is known about that part.
#[derive(Debug)]
pub(crate) enum What<'a> {
    /// The longest CNI plugin, if one was seen, and whether it accounts for the whole.
    Network {
        worker: Option<Worker<'a>>,
        whole: bool,
    },
    /// The number of images, the longest pull, and the longest step within pulls.
    Pull {
        images: usize,
        longest: Option<&'a EpisodeCall>,
        layer: Option<Worker<'a>>,
    },
    /// The longest time without a call, and the call after it.
    Outside {
        longest: Option<(f64, &'a EpisodeCall)>,
        /// What the kubelet's spans say of it.
        work: Option<InGap<'a>>,
    },
    /// The number of init containers, and the name and time of the longest.
    Init {
        waits: usize,
        longest: Option<(&'a str, f64)>,
    },
    /// The container that was waited for, how it ended, and whether it was started again.
    Stop {
        container: Option<&'a str>,
        exit: Option<&'a Exit>,
        again: bool,
    },
    /// Calls of one method.
    Calls {
        name: &'static str,
        longest: Option<&'a EpisodeCall>,
        count: usize,
        /// The worker that accounts for most of the time.
        worker: Option<Worker<'a>>,
        /// Whether any work was seen.
        seen: bool,
    },
}

/// An episode that was not slow.
#[derive(Debug)]
pub(crate) struct Quick<'a> {
    pub(super) took: f64,
    pub(super) end: End<'a>,
}

/// What it came to.
#[derive(Debug)]
pub(crate) enum End<'a> {
    /// Containers of the pod were started; the CRI does not say whether more will follow. Those that have not ended.
    Up(Vec<&'a str>),
    /// A single container runs, and no call followed: it is an init container, or the only one.
    Alone { container: &'a str, since: f64 },
    /// Its last container has done its work.
    Done(&'a Exit),
    /// A container was started again.
    ContainerUp(Option<&'a str>),
    /// Only an image was pulled.
    Pulled,
    /// Only a container was stopped.
    ContainerStopped(&'a str),
    /// The pod was stopped.
    Gone,
    /// It is incomplete.
    Begun,
}

impl Cause<'_> {
    /// Returns whether it says how many pods start at the same time.
    pub(super) fn counts_starts(&self) -> bool {
        let usual = match self {
            Self::InFlight(call) => call.usual.as_ref(),
            Self::Slow(slow) => slow.usual.as_ref().map(|(_, usual)| usual),
            Self::Unusual { usual, .. } => Some(usual),
            _ => None,
        };
        usual.is_some_and(|usual| usual.is_unusual && usual.starts >= CROWD)
    }

    /// The containers that are up, if all is well with them as far as this cause goes.
    pub(super) fn up(&self) -> Vec<&str> {
        match self {
            Self::Beside { cause, .. }
            | Self::Again { then: cause, .. }
            | Self::OomKills { then: cause, .. } => cause.up(),
            Self::Quick(quick) | Self::Unusual { end: quick, .. } => match &quick.end {
                End::Up(names) => names.clone(),
                End::Alone { container, .. } => vec![container],
                End::ContainerUp(name) => name.iter().copied().collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Returns whether it says how a run of a container or a sandbox ended.
    pub(super) fn tells_of_an_end(&self) -> bool {
        match self {
            Self::Beside { cause, .. } => cause.tells_of_an_end(),
            Self::Again { .. } | Self::Exited { .. } | Self::EndedWithNode { .. } => true,
            Self::Kubelet(cause) => matches!(cause, KubeletCause::Killed { .. }),
            Self::Quick(quick) => matches!(quick.end, End::Done(_)),
            _ => false,
        }
    }

    /// Returns whether something is the matter, rather than slow or over.
    pub(super) fn is_problem(&self) -> bool {
        match self {
            Self::Beside { cause, .. } | Self::Injected { cause, .. } => cause.is_problem(),
            Self::Kubelet(cause) => matches!(
                cause,
                KubeletCause::KeepsKilling(_)
                    | KubeletCause::SyncFails(_)
                    | KubeletCause::HookRuns { .. }
            ),
            Self::InFlight(_)
            | Self::Failing(_)
            | Self::Silent { .. }
            | Self::ImageAbsent { .. }
            | Self::PullWaits { .. }
            | Self::NodeBlocks { .. }
            | Self::Awaiting { .. }
            | Self::GivenUp { .. }
            | Self::EndedWithNode { .. }
            | Self::CrashLoop(_)
            | Self::Exited { .. }
            | Self::ProbeFails { .. }
            | Self::OomKills { .. }
            | Self::SandboxDied { .. } => true,
            Self::Deleted { .. }
            | Self::PodStopped(_)
            | Self::Recovered { .. }
            | Self::BackendWasAway { .. }
            | Self::NodeInGap { .. }
            | Self::NodeInCall { .. }
            | Self::Again { .. }
            | Self::Slow(_)
            | Self::Unusual { .. }
            | Self::Quick(_) => false,
        }
    }
}
