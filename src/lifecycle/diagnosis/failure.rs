//! Failed calls, current and past.

use super::cause::{Failure, How};
use super::work;
use crate::call::Ending;
use crate::cri::Method;
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::process_scanner::WorkKind;

fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.method == other.method
        && one.image == other.image
        && one.container_name() == other.container_name()
}

/// The newest failure that no later call resolved.
pub(super) fn unresolved(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().enumerate().rev();
    let mut bad = calls.filter(|(_, call)| call.is_bad());
    let is_open = |&(i, call): &(usize, &EpisodeCall)| {
        let mut later = episode.calls.range(i + 1..);
        !later.any(|later| makes_good(later, call))
    };
    bad.find(is_open).map(|(_, call)| call)
}

/// Returns whether a success resolves an earlier failure: that of the same call, and for a StartContainer also that of its
/// CreateContainer.
fn makes_good(later: &EpisodeCall, failed: &EpisodeCall) -> bool {
    let started = later.method == Method::StartContainer
        && failed.method == Method::CreateContainer
        && later.container_name() == failed.container_name();
    later.has_ended(Ending::Ok) && (started || is_same(later, failed))
}

/// The failure with the most tries, of an episode in which all were resolved.
pub(super) fn worst(episode: &Episode) -> Option<&EpisodeCall> {
    let bad = || episode.calls.iter().filter(|call| call.is_bad());
    bad().max_by_key(|call| bad().filter(|c| is_same(c, call)).count())
}

/// The failure of `call` and of earlier attempts at it. `past`: it was resolved.
pub(super) fn of<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    now: u64,
    past: bool,
) -> Failure<'a> {
    let calls = episode.calls.iter();
    let failed: Vec<_> = calls.filter(|c| c.is_bad() && is_same(c, call)).collect();
    Failure {
        last: call,
        tries: failed.len(),
        how: how(call, &failed),
        work: work::most(&work::calls_of(episode, call.method)),
        past,
        now,
    }
}

fn how<'a>(last: &EpisodeCall, failed: &[&'a EpisodeCall]) -> How<'a> {
    let late = failed.iter().filter(|c| c.has_ended(Ending::Deadline));
    let refused = failed.iter().filter(|c| is_refusal(c)).count();
    if let Some(first) = late.clone().next() {
        return How::Late {
            first,
            deadline: first.deadline_ms().unwrap_or(first.duration_ms()),
            times: late.count(),
            refused,
        };
    }
    if refused > 0 {
        return How::Reserved { times: refused };
    }
    if failed.iter().all(|c| c.has_ended(Ending::Cancelled)) {
        let longest = failed.iter().map(|c| c.elapsed_us()).max();
        let longest = millis(longest.unwrap_or_default());
        return How::Cancelled { longest };
    }
    match last.method {
        Method::RunPodSandbox | Method::StopPodSandbox if is_of_network(last) => How::Network {
            plugin: plugin(last),
        },
        _ => How::Error,
    }
}

/// Returns whether the runtime refused because an earlier attempt still runs.
fn is_refusal(call: &EpisodeCall) -> bool {
    let Some(error) = call.error() else {
        return false;
    };
    error.contains("is reserved") || error.contains("name is in use")
}

/// The error message of a call.
pub(super) fn message(call: &EpisodeCall) -> &str {
    call.error().map_or("", |error| error)
}

/// Returns whether the error message is about the network.
fn is_of_network(call: &EpisodeCall) -> bool {
    let error = message(call).to_ascii_lowercase();
    ["network", "cni", "plugin type", "ipam"]
        .iter()
        .any(|word| error.contains(word))
}

/// The CNI plugin in the error message, or the observed one.
fn plugin(call: &EpisodeCall) -> Option<String> {
    let named = message(call)
        .split_once("plugin type=")
        .and_then(|(_, rest)| {
            let name: String = rest
                .trim_start_matches(['"', '\\'])
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                .collect();
            (!name.is_empty()).then_some(name)
        });
    named.or_else(|| {
        let worker = work::longest(WorkKind::Cni, &std::iter::once(call))?;
        Some(worker.name.to_owned())
    })
}
