//! Where the time went in an episode in which nothing is broken.

use super::words::{subject, times};
use super::work::{self, Worker};
use crate::lifecycle::view::{Call, Episode};
use crate::units::duration;

/// What takes less than this is not slow, in milliseconds.
const QUICK: f64 = 2_000.0;

/// Whether it took long enough to ask why.
pub(super) fn is_slow(episode: &Episode) -> bool {
    episode.duration_ms >= QUICK
}

/// Where the time went.
pub(super) fn sentence(episode: &Episode) -> String {
    let longest = episode.phases.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
    let Some(longest) = longest.filter(|_| is_slow(episode)) else {
        return quick(episode);
    };
    match &*longest.phase {
        "network" => network(episode, longest.ms),
        "image_pull" => pull(episode, longest.ms),
        "outside_cri" => outside(episode, longest.ms),
        "init_container" => init(episode, longest.ms),
        "container_stop" => stop(episode, longest.ms),
        "sandbox" => within(episode, "RunPodSandbox", longest.ms),
        "container_create" => within(episode, "CreateContainer", longest.ms),
        "container_start" => within(episode, "StartContainer", longest.ms),
        "sandbox_stop" => within(episode, "StopPodSandbox", longest.ms),
        "container_remove" => within(episode, "RemoveContainer", longest.ms),
        _ => within(episode, "RemovePodSandbox", longest.ms),
    }
}

/// What there is to say of an episode that was not slow.
fn quick(episode: &Episode) -> String {
    let took = duration(episode.duration_ms);
    let container = episode.container.as_deref().unwrap_or("the container");
    let started = work::calls_of(episode, "StartContainer").any(|c| c.outcome == "ok");
    match &*episode.kind {
        "start" if started => format!("up after {took}, nothing slow"),
        "restart" if started => format!("container {container} up after {took}, nothing slow"),
        "restart" if episode.container.is_none() => format!("image pulled in {took}"),
        "stop" => match only_stopped(episode) {
            Some(name) => format!("container {name} stopped after {took}; the pod stays"),
            None => format!("gone after {took}, nothing slow"),
        },
        _ => format!("begun, {took} so far, nothing slow"),
    }
}

/// The container that was stopped in a pod that stays.
fn only_stopped(episode: &Episode) -> Option<&str> {
    let all_stops = episode.calls.iter().all(|c| c.method == "StopContainer");
    let last = episode.calls.last().filter(|_| all_stops)?;
    last.container.as_deref()
}

/// `9.50 s of 9.90 s`
fn share(ms: f64, episode: &Episode) -> String {
    format!("{} of {}", duration(ms), duration(episode.duration_ms))
}

fn network(episode: &Episode, ms: f64) -> String {
    let Some(worker) = work::longest("cni", &episode.calls.iter()) else {
        return format!("network: {}", share(ms, episode));
    };
    let during = subject(worker.call);
    if worker.ms >= 0.8 * ms {
        let share = share(ms, episode);
        return format!(
            "network: {share} in {}, during {during}",
            worker.phrase("cni")
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
    let pulls = work::calls_of(episode, "PullImage");
    let share = share(ms, episode);
    let mut images: Vec<_> = pulls.clone().filter_map(|c| c.image.as_deref()).collect();
    images.sort_unstable();
    images.dedup();
    let Some(longest) = longest_call(pulls) else {
        return format!("image pull: {share}");
    };
    let image = longest.image.as_deref().unwrap_or("an image");
    let layer = work::longest("runtime", &work::calls_of(episode, "PullImage"));
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
            duration(longest.duration_ms)
        ),
    }
}

fn longest_call<'a>(calls: impl Iterator<Item = &'a Call>) -> Option<&'a Call> {
    calls.max_by(|a, b| a.duration_ms.total_cmp(&b.duration_ms))
}

/// Time in a call: that of the OCI runtime, of the runtime itself, or just that of the call.
fn within(episode: &Episode, method: &str, ms: f64) -> String {
    let calls = work::calls_of(episode, method);
    let counts = |worker: &Worker<'_>| worker.ms >= 0.5 * ms;
    let share = |ms: f64| share(ms, episode);
    let Some(longest) = longest_call(calls.clone()) else {
        return format!("{} in {method}", share(ms));
    };
    let during = subject(longest);
    for what in ["oci", "runtime"] {
        if let Some(worker) = work::longest(what, &calls).filter(counts) {
            let share = share(worker.ms.min(ms));
            return format!("{share} in {}, during {during}", worker.phrase(what));
        }
    }
    let n = calls.clone().count();
    let several = match n {
        1 => String::new(),
        _ => format!(
            " (called {}, the longest took {})",
            times(n),
            duration(longest.duration_ms)
        ),
    };
    let seen = calls.clone().any(|c| !c.details.is_empty());
    let whose = if seen { ", in the runtime itself" } else { "" };
    format!("{} in {during}{several}{whose}", share(ms))
}

fn stop(episode: &Episode, ms: f64) -> String {
    let name = longest_call(work::calls_of(episode, "StopContainer"));
    let name = name
        .and_then(|c| c.container.as_deref())
        .unwrap_or("a container");
    let again = match &*episode.kind {
        "restart" => ", which was then started again",
        _ => "",
    };
    format!(
        "{} waiting for container {name} to end{again}",
        share(ms, episode)
    )
}

/// The kubelet's own time.
fn init(episode: &Episode, ms: f64) -> String {
    let share = share(ms, episode);
    let waits = episode.waits();
    let longest = waits
        .iter()
        .max_by(|a, b| a.duration_ms.total_cmp(&b.duration_ms));
    match (longest, waits.len()) {
        (None, _) => format!("init containers: {share}"),
        (Some(only), 1) => format!("init container {} ran for {share}", only.container),
        (Some(longest), n) => format!(
            "{n} init containers ran for {share}, {} of it {}",
            duration(longest.duration_ms),
            longest.container
        ),
    }
}

fn outside(episode: &Episode, ms: f64) -> String {
    let mut text = format!("kubelet: {} passed between CRI calls", share(ms, episode));
    let (mut end, mut widest) = (0.0_f64, None::<(f64, &Call)>);
    for call in &episode.calls {
        let gap = call.offset_ms - end;
        if widest.is_none_or(|(most, _)| gap > most) {
            widest = Some((gap, call));
        }
        end = end.max(call.offset_ms + call.duration_ms);
    }
    if let Some((gap, call)) = widest.filter(|(gap, _)| *gap > 0.0) {
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
