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

use self::before::Predecessor;
pub(super) use self::before::REPLACED_AFTER_DOWNTIME_WITHIN;
use self::cause::{CallInFlight, Cause, EpisodeOutcome, NotSlow, WorkProgress};
use self::kubelet::KubeletCause;
pub(super) use self::pods::Diagnoser;
pub(super) use self::sandbox::death;
pub(super) use self::syncs::FailingSync;
use super::episode_call::{EpisodeCall, millis};
use super::episode_store::Episode;
use super::timeline::EpisodePhase;
use super::usual::NodeContext;
use super::view::EpisodeState;
use crate::call::Ending;
use crate::call::episode::Kind;
use crate::cri::Method;

/// A call in flight is the headline after this time, in milliseconds.
const LONG_CALL_MS: f64 = 1_000.0;
/// A pause between calls of an incomplete start is the headline after this time, in milliseconds.
const LONG_SILENCE_MS: f64 = 5_000.0;

/// The cause of an episode, one of those of its `pod`. `now` in microseconds since 1970.
fn episode_cause<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: u64,
) -> Cause<'a> {
    let is_slow = node.usual.is_slow(episode.duration_ms()) && episode.kind != Kind::Stop;
    let cause =
        node::blocking_fact(episode, now).unwrap_or_else(|| of_calls(episode, pod, node, now));
    injected::with_injected_fault(
        node::with_node_conditions(cause, episode, node, is_slow, now),
        episode,
    )
}

/// The same from the calls alone.
fn cause_from_calls<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: u64,
) -> Cause<'a> {
    if let Some(call) = hanging(episode) {
        return match kubelet::hook_in_flight(episode, call) {
            Some(hook) => Cause::Kubelet(hook),
            None => Cause::CallInFlight(call_in_flight(episode, pod, call, node)),
        };
    }
    let is_unresolved = !episode.is_resolved();
    if let Some(call) = failure::newest_unresolved(episode).filter(|_| is_unresolved) {
        let failure = failure::call_failure(episode, call, now, false);
        return match episode.deleted {
            Some(at) => {
                let ago = now.saturating_sub(at);
                Cause::DeletedWithoutSandbox { ago, failure }
            }
            None => Cause::CallFails(failure),
        };
    }
    if let Some(fails) = syncs::failing_sync(episode, now) {
        return Cause::Kubelet(KubeletCause::FailingSync(fails));
    }
    if let Some(silent) = silence(episode, node, now) {
        return silent;
    }
    if let Some(awaited) = episode.awaited(now).filter(|_| episode.is_open()) {
        let since = millis(now.saturating_sub(awaited.since));
        return Cause::AwaitsContainer { awaited, since };
    }
    if episode.state == EpisodeState::Failed && episode.kind == Kind::Start {
        let after = episode.duration_ms();
        return Cause::NoContainerStarted { after };
    }
    if let Some(call) = failure::most_tried(episode) {
        if let Some(fact) = node::backend_downtime(episode, call) {
            let took = episode.duration_ms();
            return Cause::BackendWasAway {
                fact,
                kind: episode.kind,
                took,
                now,
            };
        }
        return Cause::Recovered {
            failure: failure::call_failure(episode, call, now, true),
            kind: episode.kind,
            took: episode.duration_ms(),
        };
    }
    let time = match (node::in_call(episode), kubelet::kubelet_cause(episode, pod)) {
        (Some((call, fact)), _) => {
            let total = episode.duration_ms();
            Cause::NodeInCall {
                fact,
                call,
                total,
                now,
            }
        }
        (None, Some(cause)) => Cause::Kubelet(cause),
        (None, None) => slow::duration_cause(episode, pod, node, now),
    };
    if let Some(exit) = crash::afterwards(episode, pod) {
        let then = Box::new(time);
        return match before::run_before_restart(exit, pod, now) {
            Some(run) => Cause::StartedAgain {
                before: Predecessor::ContainerRun(run),
                then,
            },
            None => Cause::ContainerExited { exit, then },
        };
    }
    let is_worth = |before: &Predecessor<'_>| has_run(&time) || before.is_death();
    match before::predecessor(episode, pod, now).filter(is_worth) {
        Some(before) => Cause::StartedAgain {
            before,
            then: Box::new(time),
        },
        None => time,
    }
}

/// Returns whether it is worth saying what came before: something runs, and it was not just said.
fn has_run(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::NotSlow(NotSlow { end, .. }) => !matches!(
            end,
            EpisodeOutcome::ContainerDone(_)
                | EpisodeOutcome::Incomplete
                | EpisodeOutcome::ImagePulled
        ),
        Cause::Kubelet(KubeletCause::ContainerKilled { .. }) => false,
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
        method => EpisodePhase::of(method),
    }
}

/// The phases of the failed calls that no later one made good.
pub(super) fn failing(episode: &Episode) -> impl Iterator<Item = EpisodePhase> {
    failure::all_unresolved(episode).map(phase)
}

/// A call that has been in flight for long. The retry of a call that failed after as long a time tells nothing new yet.
fn hanging(episode: &Episode) -> Option<&EpisodeCall> {
    let longest = longest_in_flight(episode)?;
    let is_long = longest.duration_ms() >= LONG_CALL_MS && !failure::is_retry(episode, longest);
    is_long.then_some(longest)
}

fn longest_in_flight(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().filter(|c| c.is_in_flight());
    calls.max_by_key(|call| call.elapsed())
}

fn call_in_flight<'a>(
    episode: &Episode,
    pod: &[&Episode],
    call: &'a EpisodeCall,
    node: &NodeContext<'_>,
) -> CallInFlight<'a> {
    let most = || work::most(&std::iter::once(call));
    CallInFlight {
        call,
        kill_reason: kills::known_kill_reason(pod, call),
        work: match work::at_work(call) {
            Some(worker) => WorkProgress::Current(worker),
            None => most().map_or(unseen(call), WorkProgress::SoFar),
        },
        failures: episode.failures,
        usual: node.compare(episode, call),
    }
}

fn unseen(call: &EpisodeCall) -> WorkProgress<'_> {
    WorkProgress::Unseen {
        looked: call.scanned,
    }
}

/// The kubelet has not made the next call.
fn silence<'a>(episode: &'a Episode, node: &NodeContext<'_>, now: u64) -> Option<Cause<'a>> {
    let started = work::calls_of(episode, Method::StartContainer).any(|c| c.has_ended(Ending::Ok));
    let waits = episode.state == EpisodeState::Open && episode.kind == Kind::Start && !started;
    let after = episode.calls.back().filter(|_| waits)?;
    let age = millis(now.saturating_sub(episode.began));
    let since = age - episode.duration_ms();
    let image = node
        .awaited_image(episode.number)
        .filter(|_| after.is_new_sandbox());
    // An error needs no patience.
    let is_refused = image.is_some_and(|it| it.error.is_some());
    let is_silent = since >= LONG_SILENCE_MS || is_refused;
    if !is_silent || longest_in_flight(episode).is_some() {
        return None;
    }
    // An image that the kubelet looked for twice is not going to be pulled.
    let is_next = image.map_or(after.is_new_sandbox(), |it| {
        it.error.is_none() && it.times == 1
    });
    let pull = node.pull_before(&episode.pod).filter(|_| is_next);
    Some(match (pull, image) {
        (Some(pull), _) => Cause::WaitsForPull {
            image: image.map(|it| Arc::clone(&it.image)),
            since,
            pull: pull.clone(),
        },
        (None, Some(image)) => Cause::ImageMissing {
            image: image.clone(),
            since,
        },
        (None, None) => Cause::NoFurtherCall { after, since },
    })
}
