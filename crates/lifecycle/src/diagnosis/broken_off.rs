//! Calls that were broken off because criscope, the kubelet or the runtime went away while they were in progress. The downtime is the
//! cause, not the call.

use std::time::Duration;

use super::node::FactAt;
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::node::{DOWNTIME_NOTICED_WITHIN, NodeFact, NodeFactKind};
use criscope_cri::call::Ending;
use criscope_cri::status::Code;
use criscope_cri::units::times::UnixMicros;

/// A running kubelet syncs each pod at least this often: `syncFrequency` is a minute by default, and its pod workers add up to half
/// of it (`workerResyncIntervalJitterFactor` in `pkg/kubelet/kubelet.go`).
pub(super) const KUBELET_SYNCS_WITHIN: Duration = Duration::from_secs(90);

/// A call that a downtime broke off.
#[derive(Debug)]
pub(crate) struct BrokenOffCall<'a> {
    pub(super) call: &'a EpisodeCall,
    pub(super) fact: FactAt<'a>,
    pub(super) retry: RetryState,
}

/// What came after a call that was broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryState {
    /// Nothing can come while the downtime lasts.
    Impossible,
    /// The downtime ended this long ago, and the kubelet has not made the call again.
    Awaited(Duration),
    /// The call is being made again.
    InProgress,
    /// A later call succeeded.
    Succeeded,
}

/// The downtime that broke off a failed call, and what came after. `is_resolved`: a later call succeeded.
pub(super) fn broken_off<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    now: UnixMicros,
    is_resolved: bool,
) -> Option<BrokenOffCall<'a>> {
    let fact = downtime(episode, call)?;
    let mut calls = episode.calls.iter();
    let is_made_again = calls.any(|other| other.is_in_flight() && is_same(other, call));
    let retry = match fact.to {
        _ if is_resolved => RetryState::Succeeded,
        _ if is_made_again => RetryState::InProgress,
        Some(to) => RetryState::Awaited(now.since(to)),
        None => RetryState::Impossible,
    };
    Some(BrokenOffCall {
        call,
        fact: FactAt { fact, now },
        retry,
    })
}

/// The last try of a call in flight, if a downtime broke it off.
pub(super) fn broken_off_before<'a>(
    episode: &'a Episode,
    call: &EpisodeCall,
    now: UnixMicros,
) -> Option<BrokenOffCall<'a>> {
    let mut newest_first = episode.calls.iter().rev();
    let last = newest_first.find(|other| other.is_bad() && is_same(other, call))?;
    broken_off(episode, last, now, false)
}

/// The downtime that began while a call was in flight and ended it.
pub(super) fn downtime<'a>(episode: &'a Episode, call: &EpisodeCall) -> Option<&'a NodeFact> {
    let (began, ended) = (call.began_at(), call.ended_at());
    let mut facts = episode.node.iter();
    facts.find(|fact| {
        let breaks = match &fact.kind {
            NodeFactKind::CriscopeDown | NodeFactKind::NodeRestarted { .. } => call.is_lost,
            NodeFactKind::NoKubelet => call.peer.is_kubelet() && call.has_ended(Ending::Cancelled),
            // A call that fails at once may have been refused.
            NodeFactKind::BackendDown { backend } => {
                let is_cut = is_cut_off(call) && call.took() >= DOWNTIME_NOTICED_WITHIN;
                super::node::is_on(call, backend) && is_cut
            }
            _ => false,
        };
        let is_at_end = fact.from <= ended + DOWNTIME_NOTICED_WITHIN
            && ended <= fact.from + DOWNTIME_NOTICED_WITHIN;
        breaks && is_at_end && (began < fact.from || call.is_lost)
    })
}

/// Returns whether the connection to the runtime broke during the call.
fn is_cut_off(call: &EpisodeCall) -> bool {
    let outcome = call.outcome();
    call.fault.is_none() && outcome.is_some_and(|outcome| outcome.code == Code::Unavailable)
}

fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.method == other.method
        && one.image == other.image
        && one.container_name() == other.container_name()
}
