//! Where the time went in an episode without failures.

use super::words::{subject, times};
use super::work::{self, Worker};
use crate::call::Ending;
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::process_scanner::WorkKind;
use crate::lifecycle::timeline::EpisodePhase;
use crate::units::duration;

/// An episode that took less is not slow. In milliseconds.
const QUICK: f64 = 2_000.0;

/// Returns whether an episode was slow.
pub(super) fn is_slow(episode: &Episode) -> bool {
    episode.duration_ms() >= QUICK
}

/// The sentence on the largest part of an episode's duration.
pub(super) fn sentence(episode: &Episode) -> String {
    let shares = episode.shares();
    let phases = EpisodePhase::ALL.into_iter();
    let longest = phases.max_by_key(|phase| shares[*phase as usize]);
    let Some(longest) = longest.filter(|_| is_slow(episode)) else {
        return quick(episode);
    };
    let ms = millis(shares[longest as usize]);
    match longest {
        EpisodePhase::Network => network(episode, ms),
        EpisodePhase::ImagePull => pull(episode, ms),
        EpisodePhase::OutsideCri => outside(episode, ms),
        EpisodePhase::InitContainer => init(episode, ms),
        EpisodePhase::ContainerStop => stop(episode, ms),
        EpisodePhase::Sandbox => within(episode, Method::RunPodSandbox, ms),
        EpisodePhase::ContainerCreate => within(episode, Method::CreateContainer, ms),
        EpisodePhase::ContainerStart => within(episode, Method::StartContainer, ms),
        EpisodePhase::SandboxStop => within(episode, Method::StopPodSandbox, ms),
        EpisodePhase::ContainerRemove => within(episode, Method::RemoveContainer, ms),
        EpisodePhase::SandboxRemove => within(episode, Method::RemovePodSandbox, ms),
    }
}

/// The sentence on an episode that was not slow.
fn quick(episode: &Episode) -> String {
    let took = duration(episode.duration_ms());
    let container = episode.container.as_deref();
    let container = container.map_or("the container", |c| &*c.name);
    let started = work::calls_of(episode, Method::StartContainer).any(|c| c.has_ended(Ending::Ok));
    match episode.kind {
        Kind::Start if started => format!("up after {took}, nothing slow"),
        Kind::Restart if started => format!("container {container} up after {took}, nothing slow"),
        Kind::Restart if episode.container.is_none() => format!("image pulled in {took}"),
        Kind::Stop => match only_stopped(episode) {
            Some(name) => format!("container {name} stopped after {took}; the pod stays"),
            None => format!("gone after {took}, nothing slow"),
        },
        _ => format!("begun, {took} so far, nothing slow"),
    }
}

/// The container that was stopped, if the pod was not.
fn only_stopped(episode: &Episode) -> Option<&str> {
    let all_stops = episode
        .calls
        .iter()
        .all(|c| c.method == Method::StopContainer);
    let last = episode.calls.back().filter(|_| all_stops)?;
    last.container_name()
}

/// `9.50 s of 9.90 s`
fn share(ms: f64, episode: &Episode) -> String {
    format!("{} of {}", duration(ms), duration(episode.duration_ms()))
}

fn network(episode: &Episode, ms: f64) -> String {
    let Some(worker) = work::longest(WorkKind::Cni, &episode.calls.iter()) else {
        return format!("network: {}", share(ms, episode));
    };
    let during = subject(worker.call);
    if worker.ms >= 0.8 * ms {
        let share = share(ms, episode);
        return format!(
            "network: {share} in {}, during {during}",
            worker.phrase(WorkKind::Cni)
        );
    }
    format!(
        "network: {} in CNI plugins, most of it ({}) in {}, during {during}",
        share(ms, episode),
        duration(worker.ms),
        worker.name
    )
}

fn pull(episode: &Episode, ms: f64) -> String {
    let pulls = work::calls_of(episode, Method::PullImage);
    let share = share(ms, episode);
    let mut images: Vec<_> = pulls.clone().filter_map(|c| c.image.as_deref()).collect();
    images.sort_unstable();
    images.dedup();
    let Some(longest) = longest_call(pulls) else {
        return format!("image pull: {share}");
    };
    let image = longest.image.as_deref().unwrap_or("an image");
    let layer = work::longest(
        WorkKind::Runtime,
        &work::calls_of(episode, Method::PullImage),
    );
    let layer = layer.filter(|worker| worker.own && worker.ms >= 0.5 * ms);
    match images.len() {
        0 | 1 => match layer {
            Some(step) => format!(
                "image pull: {share} pulling {image}, {} of it {}",
                duration(step.ms),
                step.name
            ),
            None => format!("image pull: {share} pulling {image}"),
        },
        n => format!(
            "image pull: {share} pulling {n} images, {} of it {image}",
            duration(longest.duration_ms())
        ),
    }
}

fn longest_call<'a>(calls: impl Iterator<Item = &'a EpisodeCall>) -> Option<&'a EpisodeCall> {
    calls.max_by_key(|call| call.elapsed())
}

/// Time in calls of one method: of the OCI runtime, of the runtime itself, or of the call.
fn within(episode: &Episode, method: Method, ms: f64) -> String {
    let calls = work::calls_of(episode, method);
    let counts = |worker: &Worker<'_>| worker.ms >= 0.5 * ms;
    let share = |ms: f64| share(ms, episode);
    let Some(longest) = longest_call(calls.clone()) else {
        return format!("{} in {}", share(ms), method.name());
    };
    let during = subject(longest);
    for kind in [WorkKind::Oci, WorkKind::Runtime] {
        if let Some(worker) = work::longest(kind, &calls).filter(counts) {
            let share = share(worker.ms.min(ms));
            return format!("{share} in {}, during {during}", worker.phrase(kind));
        }
    }
    let n = calls.clone().count();
    let several = match n {
        1 => String::new(),
        _ => format!(
            " (called {}, the longest took {})",
            times(n),
            duration(longest.duration_ms())
        ),
    };
    let seen = calls.clone().any(|c| !c.work.is_empty());
    let whose = if seen { ", in the runtime itself" } else { "" };
    format!("{} in {during}{several}{whose}", share(ms))
}

fn stop(episode: &Episode, ms: f64) -> String {
    let name = longest_call(work::calls_of(episode, Method::StopContainer));
    let name = name
        .and_then(|c| c.container_name())
        .unwrap_or("a container");
    let again = match episode.kind {
        Kind::Restart => ", which was then started again",
        _ => "",
    };
    format!(
        "{} waiting for container {name} to end{again}",
        share(ms, episode)
    )
}

/// Time in init containers.
fn init(episode: &Episode, ms: f64) -> String {
    let share = share(ms, episode);
    let waits = episode.waits();
    let longest = waits.iter().max_by_key(|wait| wait.took);
    match (longest, waits.len()) {
        (None, _) => format!("init containers: {share}"),
        (Some(only), 1) => format!("init container {} ran for {share}", only.container),
        (Some(longest), n) => format!(
            "{n} init containers ran for {share}, {} of it {}",
            duration(millis(longest.took)),
            longest.container
        ),
    }
}

fn outside(episode: &Episode, ms: f64) -> String {
    let mut text = format!("kubelet: {} passed between CRI calls", share(ms, episode));
    let (mut end, mut widest) = (episode.began, None::<(u64, &EpisodeCall)>);
    for call in &episode.calls {
        let gap = call.began_us().saturating_sub(end);
        if gap > widest.map_or(0, |(most, _)| most) {
            widest = Some((gap, call));
        }
        end = end.max(call.end_us());
    }
    if let Some((gap, call)) = widest {
        let gap = millis(gap);
        let most = if gap >= 0.99 * ms {
            "all of it"
        } else {
            "most of it"
        };
        let before = subject(call);
        text += &match most {
            "all of it" => format!(", before {before}"),
            _ if gap >= 0.5 * ms => format!(", {most} ({}) before {before}", duration(gap)),
            _ => format!(", the longest gap ({}) before {before}", duration(gap)),
        };
    }
    text
}
