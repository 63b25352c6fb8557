//! Rules on the node: a backend that does not answer or is not ready, a kubelet that is gone, times in which criscope was down,
//! and pressure.

use std::time::Duration;

use super::broken_off::KUBELET_SYNCS_WITHIN;
use super::cause::{CallFailure, CallInFlight, Cause, Severity};
use super::fault::FaultClass;
use super::kubelet::KubeletCause;
use super::remarks::{Diagnosis, Remark};
use super::{LONG_CALL, LONG_SILENCE, failure, fault, history, longest_in_flight, work};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::node::{DOWNTIME_NOTICED_WITHIN, NodeFact, NodeFactKind};
use crate::timeline::EpisodePhase;
use crate::usual::NodeContext;
use crate::view::EpisodeState;
use criscope_cri::call::Ending;
use criscope_cri::call::episode::Kind;
use criscope_cri::status::Code;
use criscope_cri::units::times::UnixMicros;

/// The event that an episode waits for.
#[derive(Debug)]
pub(crate) enum EpisodeWait<'a> {
    /// The end of this call.
    EndOfCall(&'a EpisodeCall),
    /// Another try of this call, whose last try ended this long `ago`.
    Retry {
        call: &'a EpisodeCall,
        tries: usize,
        ago: Duration,
    },
    /// The call after this one, which ended this long `ago`.
    NextCall {
        after: &'a EpisodeCall,
        ago: Duration,
    },
}

/// A fact as it is at the time of the diagnosis, or of another moment. Its `Display` is the sentence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactAt<'a> {
    pub(super) fact: &'a NodeFact,
    pub(super) now: UnixMicros,
}

/// The fact that an unfinished episode waits for.
pub(super) fn blocking_fact(episode: &Episode, now: UnixMicros) -> Option<Cause<'_>> {
    if episode.state == EpisodeState::Ok {
        return None;
    }
    let waits = episode_wait(episode, now)?;
    if let EpisodeWait::EndOfCall(call) | EpisodeWait::Retry { call, .. } = &waits
        && call.fault.is_some()
    {
        return None;
    }
    let holding = episode.node.iter().filter(|fact| fact.holds());
    // If two facts are about one hang, the first has its begin.
    let causes = holding.filter(|fact| is_cause(fact, &waits));
    let fact = causes.min_by_key(|fact| fact.from)?;
    let fact = FactAt { fact, now };
    Some(Cause::WaitsForNode { fact, waits })
}

fn episode_wait(episode: &Episode, now: UnixMicros) -> Option<EpisodeWait<'_>> {
    if let Some(call) = longest_in_flight(episode) {
        return (call.took() >= LONG_CALL).then_some(EpisodeWait::EndOfCall(call));
    }
    if let Some(call) = failure::newest_unresolved(episode) {
        return Some(EpisodeWait::Retry {
            call,
            tries: failure::tries(episode, call),
            ago: now.since(call.ended_at()),
        });
    }
    let after = episode.calls.back()?;
    let is_silent = now.since(episode.ended) >= LONG_SILENCE;
    (is_silent && history::awaits_first_container(episode)).then(|| EpisodeWait::NextCall {
        after,
        ago: now.since(after.ended_at()),
    })
}

fn is_cause(fact: &NodeFact, waits: &EpisodeWait<'_>) -> bool {
    let (EpisodeWait::EndOfCall(call)
    | EpisodeWait::Retry { call, .. }
    | EpisodeWait::NextCall { after: call, .. }) = waits;
    if fact.backend().is_some_and(|backend| !is_on(call, backend)) {
        return false;
    }
    match &fact.kind {
        NodeFactKind::BackendDown { .. } => match waits {
            EpisodeWait::Retry { call, .. } => is_unavailable(call),
            EpisodeWait::EndOfCall(_) | EpisodeWait::NextCall { .. } => true,
        },
        // A call that others are seen at work for does not wait for the runtime alone.
        NodeFactKind::BackendHangs { .. } => match waits {
            EpisodeWait::EndOfCall(call) => work::at_work(call).is_none(),
            EpisodeWait::Retry { .. } => false,
            EpisodeWait::NextCall { .. } => true,
        },
        NodeFactKind::NotReady { condition, .. } => match waits {
            // CRI-O waits for the network within the call.
            EpisodeWait::EndOfCall(call) => call.method.makes_sandbox(),
            EpisodeWait::Retry { call, .. } => {
                call.method.makes_sandbox()
                    && (condition != "NetworkReady" || fault::is_of_network(call))
            }
            EpisodeWait::NextCall { .. } => true,
        },
        NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent => {
            matches!(waits, EpisodeWait::NextCall { .. })
        }
        NodeFactKind::CriscopeDown
        | NodeFactKind::CriscopeBypassed
        | NodeFactKind::NodeRestarted { .. }
        | NodeFactKind::CriscopeStalled
        | NodeFactKind::ImageFsFull { .. } => false,
    }
}

pub(super) fn is_on(call: &EpisodeCall, backend: &str) -> bool {
    let route = call.route.as_ref();
    route.is_none_or(|route| *route.backend == *backend)
}

fn is_unavailable(call: &EpisodeCall) -> bool {
    let outcome = call.outcome();
    call.fault.is_none() && outcome.is_some_and(|outcome| outcome.code == Code::Unavailable)
}

/// The downtime of its backend for which a call failed that was later repeated with success.
pub(super) fn backend_downtime<'a>(
    episode: &'a Episode,
    call: &EpisodeCall,
) -> Option<&'a NodeFact> {
    let (from, to) = (
        call.began_at() - DOWNTIME_NOTICED_WITHIN,
        call.ended_at() + DOWNTIME_NOTICED_WITHIN,
    );
    let mut facts = episode.node.iter().filter(|_| is_unavailable(call));
    facts.find(|fact| {
        let is_down =
            matches!(&fact.kind, NodeFactKind::BackendDown { backend } if is_on(call, backend));
        is_down && !fact.within(from, to).is_zero()
    })
}

/// The past downtime of the runtime for which a call failed that was not tried again.
pub(super) fn refusing_runtime<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    now: UnixMicros,
) -> Option<Cause<'a>> {
    let fact = backend_downtime(episode, call)?;
    let (fact, ago) = (FactAt { fact, now }, now.since(call.ended_at()));
    let tries = failure::tries(episode, call);
    let waits = EpisodeWait::Retry { call, tries, ago };
    Some(Cause::WaitsForNode { fact, waits })
}

/// The fact that explains a gap between calls: it held for at least half of the gap.
pub(super) fn in_gap(episode: &Episode, from: UnixMicros, to: UnixMicros) -> Option<&NodeFact> {
    let facts = episode.node.iter();
    let facts = facts.filter(|fact| !matches!(fact.kind, NodeFactKind::ImageFsFull { .. }));
    let longest = facts.max_by_key(|fact| fact.within(from, to))?;
    (2 * longest.within(from, to) >= to.since(from)).then_some(longest)
}

/// The fact that explains the silence since a call ended, and that is over. A downtime of criscope, the kubelet or the runtime is
/// followed by a sync of each pod: it counts until then. Any other fact counts if it held for at least half of the silence.
pub(super) fn in_silence<'a>(
    episode: &'a Episode,
    after: &EpisodeCall,
    now: UnixMicros,
) -> Option<&'a NodeFact> {
    let from = after.ended_at();
    let facts = episode.node.iter().filter(|fact| {
        let backend = fact.backend();
        backend.is_none_or(|backend| is_on(after, backend)) && fact.to.is_some_and(|to| to > from)
    });
    let explaining = facts.filter(|fact| {
        let to = fact.to.unwrap_or(now);
        let is_half = 2 * fact.within(from, now) >= now.since(from);
        match fact.kind {
            NodeFactKind::ImageFsFull { .. } => false,
            NodeFactKind::BackendHangs { .. }
            | NodeFactKind::NotReady { .. }
            | NodeFactKind::KubeletSilent
            | NodeFactKind::CriscopeStalled => is_half,
            NodeFactKind::BackendDown { .. }
            | NodeFactKind::NoKubelet
            | NodeFactKind::CriscopeDown
            | NodeFactKind::CriscopeBypassed
            | NodeFactKind::NodeRestarted { .. } => is_half || now.since(to) < KUBELET_SYNCS_WITHIN,
        }
    });
    explaining.max_by_key(|fact| fact.within(from, now))
}

/// The call in which most of an episode passed while its runtime did not answer, and the fact that shows it.
pub(super) fn in_call(episode: &Episode) -> Option<(&EpisodeCall, &NodeFact)> {
    let done = episode.calls.iter().filter(|call| !call.is_in_flight());
    let call = done.max_by_key(|call| call.elapsed())?;
    let took = call.took();
    if took < LONG_CALL || 2 * took < episode.duration() {
        return None;
    }
    let fact = in_gap(episode, call.began_at(), call.ended_at())?;
    let is_of_call = match &fact.kind {
        NodeFactKind::BackendDown { backend } | NodeFactKind::BackendHangs { backend } => {
            is_on(call, backend)
        }
        NodeFactKind::CriscopeStalled => true,
        _ => false,
    };
    is_of_call.then_some((call, fact))
}

/// Returns whether a cause is an error other than a passed deadline.
fn is_error(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::CallFails(failure) => {
            let code = failure.last.outcome().map(|outcome| outcome.code);
            failure.last.has_ended(Ending::Error) && code != Some(Code::DeadlineExceeded)
        }
        Cause::Kubelet(KubeletCause::FailingSync(_)) => true,
        _ => false,
    }
}

/// Returns whether scarcity on the node may be the reason of a delay: a call did work on the node. Downloads, back-offs, the programs of
/// containers and the kubelet's own waits have reasons of their own.
fn is_work_on_node(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::CallInFlight(CallInFlight { call, .. })
        | Cause::UnusualCall { call, .. }
        | Cause::CallFails(CallFailure { last: call, .. }) => {
            let phase = EpisodePhase::from_method(call.method);
            !is_error(cause) && is_work_on_node_in(phase)
        }
        Cause::SlowPhase(slow) => is_work_on_node_in(slow.phase),
        _ => false,
    }
}

/// The cgroup driver that criscope told the kubelet in place of a runtime, if a failure may come from another driver than the runtime's.
pub(super) fn answered_driver<'a>(
    diagnosis: &Diagnosis<'a>,
    node: &NodeContext<'a>,
) -> Option<Remark<'a>> {
    let failures = diagnosis.causes().filter_map(|cause| match cause {
        Cause::CallFails(failure) => Some(failure),
        _ => None,
    });
    let mut of_cgroup = failures.filter(|failure| {
        let fault = failure.kind.fault();
        matches!(fault, Some(FaultClass::CgroupDriver | FaultClass::Cgroup))
    });
    of_cgroup.find_map(|failure| {
        let route = failure.last.route.as_ref();
        let backend = route.map(|route| &*route.backend);
        let driver = node.programs.answered_driver(backend)?;
        let runtime = node.programs.runtime(backend);
        Some(Remark::AnsweredDriver { runtime, driver })
    })
}

fn is_work_on_node_in(phase: EpisodePhase) -> bool {
    matches!(
        phase,
        EpisodePhase::Sandbox
            | EpisodePhase::Restore
            | EpisodePhase::Network
            | EpisodePhase::ContainerCreate
            | EpisodePhase::ContainerStart
            | EpisodePhase::ContainerRemove
            | EpisodePhase::SandboxStop
            | EpisodePhase::SandboxRemove
    )
}

/// The absence of the kubelet that ended just before it saw the new pod of a start: the pod may have been made meanwhile.
fn absence_before(start: &Episode) -> Option<&NodeFact> {
    let seen = start.began - start.before_cri()?;
    let mut facts = start.node.iter();
    facts.find(|fact| fact.kind == NodeFactKind::NoKubelet && fact.to.is_some_and(|to| to <= seen))
}

/// Adds the conditions of the node: a downtime in which a start may have begun, and scarcity if the episode was slow.
pub(super) fn add_conditions<'a>(
    diagnosis: &mut Diagnosis<'a>,
    episode: &'a Episode,
    node: &NodeContext<'_>,
    now: UnixMicros,
) {
    let Diagnosis { cause, remarks, .. } = diagnosis;
    let mut facts = episode.node.iter();
    // Nothing precedes a new sandbox.
    let first = episode.calls.front();
    let is_cut = first.is_none_or(|call| !call.method.makes_sandbox());
    let downtime = facts
        .find(|fact| is_cut && fact.is_downtime() && fact.to.is_some_and(|to| to <= episode.began));
    remarks.extend(downtime.map(|fact| Remark::BeganUnseen(FactAt { fact, now })));
    let absence = absence_before(episode).filter(|_| cause.row().severity < Severity::Impaired);
    remarks.extend(absence.map(|fact| Remark::BeganWithKubelet(FactAt { fact, now })));
    let is_slow = node.usual.is_slow(episode.duration()) && episode.kind != Kind::Stop;
    if !is_slow || !is_work_on_node(cause) {
        return;
    }
    let pressure = episode.pressure.as_ref();
    remarks.extend(pressure.and_then(|pressure| Some(Remark::ShortOf(pressure.short_of()?))));
}
