//! Diagnosis of pods that are slow or not ready. The rules choose the most important fact, a [`Cause`], and remarks on it from
//! episodes and the time; the `Display` of this [`Diagnosis`], in `words`, is the sentence that people read.

mod before;
mod cause;
mod crash;
mod ephemeral;
mod failure;
mod fault;
mod history;
mod injected;
mod kills;
mod kubelet;
mod node;
mod oom;
mod pods;
mod reboot;
mod remarks;
mod sandbox;
mod slow;
mod stopped;
mod syncs;
#[cfg(test)]
mod tests;
mod words;
mod work;

use std::sync::Arc;
use std::time::Duration;

use self::before::Predecessor;
pub(super) use self::before::REPLACED_AFTER_DOWNTIME_WITHIN;
use self::cause::{CallInFlight, Cause, EpisodeOutcome, NotSlow, WorkProgress};
use self::kubelet::KubeletCause;
use self::node::FactAt;
pub(super) use self::pods::Diagnoser;
use self::remarks::{Diagnosis, Remark};
pub(super) use self::sandbox::death;
pub(super) use self::syncs::FailingSync;
use super::episode_call::EpisodeCall;
use super::episode_store::Episode;
use super::timeline::EpisodePhase;
use super::usual::NodeContext;
use super::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A call in flight is the headline after this time.
const LONG_CALL: Duration = Duration::from_secs(1);
/// A pause between calls of an incomplete start is the headline after this time.
const LONG_SILENCE: Duration = Duration::from_secs(5);

/// The diagnosis of an episode. `pod`: all episodes of its pod.
fn episode_cause<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Diagnosis<'a> {
    let trouble = node::blocking_fact(episode, now)
        .or_else(|| trouble(episode, pod, node, now))
        .map(Diagnosis::from);
    let mut diagnosis = trouble
        .or_else(|| recovery(episode, now))
        .unwrap_or_else(|| duration_diagnosis(episode, pod, node, now));
    node::add_conditions(&mut diagnosis, episode, node, now);
    injected::add_fault(&mut diagnosis, episode);
    diagnosis
}

/// The cause of an episode that is not complete, or failed.
fn trouble<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Option<Cause<'a>> {
    if let Some(call) = hanging(episode) {
        let hook = kubelet::hook_in_flight(episode, call).map(Cause::Kubelet);
        return hook.or_else(|| Some(call_in_flight(episode, pod, call, node)));
    }
    let is_unresolved = !episode.is_resolved();
    if let Some(call) = failure::newest_unresolved(episode).filter(|_| is_unresolved) {
        let failure = failure::call_failure(episode, call, now, false);
        return Some(match episode.deleted {
            Some(at) => {
                let ago = now.since(at);
                Cause::DeletedWithoutSandbox { ago, failure }
            }
            None => Cause::CallFails(failure),
        });
    }
    if let Some(fails) = syncs::failing_sync(episode, now) {
        return Some(Cause::Kubelet(KubeletCause::FailingSync(fails)));
    }
    if let Some(silent) = silence(episode, node, now) {
        return Some(silent);
    }
    if let Some(awaited) = episode.awaited(now).filter(|_| episode.is_open()) {
        let since = now.since(awaited.since);
        return Some(Cause::AwaitsContainer { awaited, since });
    }
    let has_failed = episode.state == EpisodeState::Failed && episode.kind == Kind::Start;
    has_failed.then(|| Cause::NoContainerStarted {
        after: episode.duration(),
    })
}

/// The failed calls of an episode that later ones made good.
fn recovery(episode: &Episode, now: UnixMicros) -> Option<Diagnosis<'_>> {
    let call = failure::most_tried(episode)?;
    let cause = match node::backend_downtime(episode, call) {
        Some(fact) => Cause::BackendWasAway(FactAt { fact, now }),
        None => Cause::Recovered(failure::call_failure(episode, call, now, true)),
    };
    let (kind, took) = (episode.kind, episode.duration());
    Some(Diagnosis {
        remarks: vec![Remark::Ended { kind, took }],
        ..cause.into()
    })
}

/// What took the time of an episode without failures, after the end of a run that it shows, or that it follows.
fn duration_diagnosis<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Diagnosis<'a> {
    let of_node = node::in_call(episode).map(|(call, fact)| Cause::NodeInCall {
        fact: FactAt { fact, now },
        call,
        total: episode.duration(),
    });
    let time = of_node
        .or_else(|| kubelet::kubelet_cause(episode, pod).map(Cause::Kubelet))
        .map_or_else(
            || slow::largest_part(episode, pod, node, now),
            Diagnosis::from,
        );
    if let Some(exit) = crash::faulty_exit(episode, pod) {
        let run = before::run_before_restart(exit, pod, now).map(Predecessor::ContainerRun);
        let exited = run.map_or(Cause::ContainerExited(exit), Cause::StartedAgain);
        return time.led_by(exited);
    }
    match before::predecessor(episode, pod, now) {
        Some(before) if leaves_room_for_predecessor(&time.cause) || before.is_death() => {
            time.led_by(Cause::StartedAgain(before))
        }
        _ => time,
    }
}

/// Returns whether the predecessor is worth a word after this cause: something runs again, and the cause does not say why.
fn leaves_room_for_predecessor(cause: &Cause<'_>) -> bool {
    use EpisodeOutcome::{ContainerDone, ImagePulled, Incomplete};
    !matches!(
        cause,
        Cause::Kubelet(KubeletCause::ContainerKilled { .. })
            | Cause::NotSlow(NotSlow {
                end: ContainerDone(_) | ImagePulled | Incomplete,
                ..
            })
    )
}

/// The phase that a call counts for. A RunPodSandbox that failed for the network counts for the network.
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

/// The phases of the failed calls that no later call resolved.
pub(super) fn failing_phases(episode: &Episode) -> impl Iterator<Item = EpisodePhase> {
    failure::all_unresolved(episode).map(phase)
}

/// A call that has been in flight for long. A retry has no news until it has taken longer than the failed call.
fn hanging(episode: &Episode) -> Option<&EpisodeCall> {
    let longest = longest_in_flight(episode)?;
    let is_long = longest.took() >= LONG_CALL && !failure::is_retry(episode, longest);
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
) -> Cause<'a> {
    Cause::CallInFlight(CallInFlight {
        call,
        kill_reason: kills::known_kill_reason(pod, call),
        work: work::at_work(call).map_or_else(|| failure::progress(&[call]), WorkProgress::Current),
        failures: episode.failures,
        usual: node.compare(episode, call),
    })
}

/// The cause of a start in which the kubelet has not made the next call for long.
fn silence<'a>(episode: &'a Episode, node: &NodeContext<'_>, now: UnixMicros) -> Option<Cause<'a>> {
    let waits = history::awaits_first_container(episode);
    let after = episode.calls.back().filter(|_| waits)?;
    let age = now.since(episode.began);
    let since = age.saturating_sub(episode.duration());
    let image = node
        .awaited_image(episode.number)
        .filter(|_| after.is_new_sandbox());
    // A failed lookup is told at once.
    let has_failed = image.is_some_and(|image| image.error.is_some());
    let is_silent = since >= LONG_SILENCE || has_failed;
    if !is_silent || longest_in_flight(episode).is_some() {
        return None;
    }
    // An image that the kubelet looked for twice is not going to be pulled.
    let awaits_pull = match image {
        Some(image) => image.error.is_none() && image.times == 1,
        None => after.is_new_sandbox(),
    };
    let pull = node.pull_before(&episode.pod).filter(|_| awaits_pull);
    Some(match (pull, image) {
        (Some(pull), _) => Cause::WaitsForPull {
            image: image.map(|missing| Arc::clone(&missing.image)),
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
