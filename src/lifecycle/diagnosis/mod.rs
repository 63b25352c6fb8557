//! Why a pod was slow, or is not ready: the most important fact. The rules choose a [`Cause`], a function of episodes and
//! the time; its `Display`, in `words`, is the sentence that people read.

mod before;
mod cause;
mod crash;
mod ephemeral;
mod failure;
mod fault;
mod injected;
mod kills;
mod kubelet;
mod node;
mod oom;
mod pods;
mod reboot;
mod sandbox;
mod slow;
mod stopped;
mod syncs;
#[cfg(test)]
mod tests;
mod words;
mod work;

use std::sync::Arc;

use self::before::Before;
pub(super) use self::before::LOST;
use self::cause::{Cause, End, InFlight, Progress, Quick};
use self::kubelet::KubeletCause;
pub(super) use self::pods::Pods;
pub(super) use self::sandbox::death;
pub(super) use self::syncs::SyncFails;
use super::episode_call::{EpisodeCall, millis};
use super::episode_store::Episode;
use super::timeline::EpisodePhase;
use super::usual::Node;
use super::view::State;
use crate::call::Ending;
use crate::call::episode::Kind;
use crate::cri::Method;

/// A call in flight is the headline after this time, in milliseconds.
const WORTH: f64 = 1_000.0;
/// A pause between calls of an incomplete start is the headline after this time, in milliseconds.
const SILENCE: f64 = 5_000.0;

/// The cause of an episode, one of those of its `pod`. `now` in microseconds since 1970.
fn of_episode<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &Node<'_>,
    now: u64,
) -> Cause<'a> {
    let is_slow = node.usual.is_slow(episode.duration_ms()) && episode.kind != Kind::Stop;
    let cause = node::blocks(episode, now).unwrap_or_else(|| of_calls(episode, pod, node, now));
    injected::with(node::with(cause, episode, node, is_slow, now), episode)
}

/// The same from the calls alone.
fn of_calls<'a>(episode: &'a Episode, pod: &[&'a Episode], node: &Node<'_>, now: u64) -> Cause<'a> {
    if let Some(call) = hanging(episode) {
        return match kubelet::in_flight(episode, call) {
            Some(hook) => Cause::Kubelet(hook),
            None => Cause::InFlight(waits(episode, pod, call, node)),
        };
    }
    let is_unresolved = !episode.is_resolved();
    if let Some(call) = failure::unresolved(episode).filter(|_| is_unresolved) {
        let failure = failure::of(episode, call, now, false);
        return match episode.deleted {
            Some(at) => {
                let ago = now.saturating_sub(at);
                Cause::Deleted { ago, failure }
            }
            None => Cause::Failing(failure),
        };
    }
    if let Some(fails) = syncs::failing(episode, now) {
        return Cause::Kubelet(KubeletCause::SyncFails(fails));
    }
    if let Some(silent) = silence(episode, node, now) {
        return silent;
    }
    if let Some(awaited) = episode.awaited(now).filter(|_| episode.is_open()) {
        let since = millis(now.saturating_sub(awaited.since));
        return Cause::Awaiting { awaited, since };
    }
    if episode.state == State::Failed && episode.kind == Kind::Start {
        let after = episode.duration_ms();
        return Cause::GivenUp { after };
    }
    if let Some(call) = failure::worst(episode) {
        if let Some(fact) = node::away(episode, call) {
            let took = episode.duration_ms();
            return Cause::BackendWasAway {
                fact,
                kind: episode.kind,
                took,
                now,
            };
        }
        return Cause::Recovered {
            failure: failure::of(episode, call, now, true),
            kind: episode.kind,
            took: episode.duration_ms(),
        };
    }
    let time = match (node::in_call(episode), kubelet::of(episode, pod)) {
        (Some((call, fact)), _) => {
            let of = episode.duration_ms();
            Cause::NodeInCall {
                fact,
                call,
                of,
                now,
            }
        }
        (None, Some(cause)) => Cause::Kubelet(cause),
        (None, None) => slow::of(episode, pod, node, now),
    };
    if let Some(exit) = crash::afterwards(episode, pod) {
        let then = Box::new(time);
        return match before::again(exit, pod, now) {
            Some(run) => Cause::Again {
                before: Before::Run(run),
                then,
            },
            None => Cause::Exited { exit, then },
        };
    }
    let is_worth = |before: &Before<'_>| has_run(&time) || before.is_death();
    match before::of(episode, pod, now).filter(is_worth) {
        Some(before) => Cause::Again {
            before,
            then: Box::new(time),
        },
        None => time,
    }
}

/// Returns whether it is worth saying what came before: something runs, and it was not just said.
fn has_run(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::Quick(Quick { end, .. }) => !matches!(end, End::Done(_) | End::Begun | End::Pulled),
        Cause::Kubelet(KubeletCause::Killed { .. }) => false,
        _ => true,
    }
}

/// The phase that a call counts for: the network's, if it failed for the network.
pub(super) fn phase(call: &EpisodeCall) -> EpisodePhase {
    match call.method {
        Method::RunPodSandbox
            if call.is_bad() && !failure::is_injected(call) && fault::is_of_network(call) =>
        {
            EpisodePhase::Network
        }
        method => EpisodePhase::from_method(method),
    }
}

/// The phases of the failed calls that no later one made good.
pub(super) fn failing(episode: &Episode) -> impl Iterator<Item = EpisodePhase> {
    failure::all_unresolved(episode).map(phase)
}

/// A call that has been in flight for long. The retry of a call that failed after as long a time tells nothing new yet.
fn hanging(episode: &Episode) -> Option<&EpisodeCall> {
    let longest = longest_in_flight(episode)?;
    let is_long = longest.duration_ms() >= WORTH && !failure::is_retry(episode, longest);
    is_long.then_some(longest)
}

fn longest_in_flight(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().filter(|c| c.is_in_flight());
    calls.max_by_key(|call| call.elapsed())
}

fn waits<'a>(
    episode: &Episode,
    pod: &[&Episode],
    call: &'a EpisodeCall,
    node: &Node<'_>,
) -> InFlight<'a> {
    let most = || work::most(&std::iter::once(call));
    InFlight {
        call,
        kills_for: kills::kills_for(pod, call),
        work: match work::at_work(call) {
            Some(worker) => Progress::Now(worker),
            None => most().map_or(unseen(call), Progress::SoFar),
        },
        failures: episode.failures,
        usual: node.compare(episode, call),
    }
}

fn unseen(call: &EpisodeCall) -> Progress<'_> {
    Progress::Unseen {
        looked: call.scanned,
    }
}

/// The kubelet has not made the next call.
fn silence<'a>(episode: &'a Episode, node: &Node<'_>, now: u64) -> Option<Cause<'a>> {
    let started = work::calls_of(episode, Method::StartContainer).any(|c| c.has_ended(Ending::Ok));
    let waits = episode.state == State::Open && episode.kind == Kind::Start && !started;
    let after = episode.calls.back().filter(|_| waits)?;
    let age = millis(now.saturating_sub(episode.began));
    let since = age - episode.duration_ms();
    let image = node
        .awaited_image(episode.number)
        .filter(|_| after.is_new_sandbox());
    // An error needs no patience.
    let is_refused = image.is_some_and(|it| it.error.is_some());
    let is_silent = since >= SILENCE || is_refused;
    if !is_silent || longest_in_flight(episode).is_some() {
        return None;
    }
    // An image that the kubelet looked for twice is not going to be pulled.
    let is_next = image.map_or(after.is_new_sandbox(), |it| {
        it.error.is_none() && it.times == 1
    });
    let pull = node.pull_before(&episode.pod).filter(|_| is_next);
    Some(match (pull, image) {
        (Some(pull), _) => Cause::PullWaits {
            image: image.map(|it| Arc::clone(&it.image)),
            since,
            pull: pull.clone(),
        },
        (None, Some(image)) => Cause::ImageAbsent {
            image: image.clone(),
            since,
        },
        (None, None) => Cause::Silent { after, since },
    })
}
