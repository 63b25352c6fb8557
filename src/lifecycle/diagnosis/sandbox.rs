//! Sandboxes that ended although nobody had asked for it, and have not been replaced.

use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::ExitReason;
use crate::lifecycle::episode_store::{Episode, SandboxEnd};

/// Containers that end with their sandbox are told to have ended up to this time before it, in microseconds.
const TOGETHER: u64 = 1_000_000;

/// The end of a sandbox that nobody asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::lifecycle) struct Death<'a> {
    pub(super) end: &'a SandboxEnd,
    /// Whether it ended with its shim. containerd then reports SIGKILL for the first process, and an unknown exit for containers.
    pub(super) with_shim: bool,
}

/// The end of the sandbox of this attempt, if nobody had asked for it.
pub(super) fn death<'a>(pod: &[&'a Episode], attempt: u32) -> Option<Death<'a>> {
    let own = || pod.iter().filter(|it| it.pod.attempt == attempt);
    let mut ends = own().filter_map(|it| it.sandbox_end.as_ref());
    let end = ends.next().filter(|end| !end.ordered)?;
    let with_shim = own()
        .flat_map(|it| &it.exits)
        .any(|exit| exit.reason == ExitReason::Unknown && exit.at.abs_diff(end.at) <= TOGETHER);
    Some(Death { end, with_shim })
}

/// The end of the newest sandbox of these episodes of a pod, if a container ran in it, and whether it was stopped since.
pub(super) fn died<'a>(pod: &[&'a Episode]) -> Option<(Death<'a>, bool)> {
    let starts = pod.iter().filter(|episode| episode.kind == Kind::Start);
    let newest = starts.max_by_key(|it| (it.pod.attempt, it.began))?;
    let death = death(pod, newest.pod.attempt)?;
    let end = death.end;
    let own = || {
        let of_it = |it: &&&Episode| it.pod.attempt == newest.pod.attempt;
        pod.iter().filter(of_it)
    };
    let has_ended = |name: &str, attempt: u32| {
        let mut exits = own().flat_map(|episode| &episode.exits);
        exits.any(|exit| {
            let is_before = exit.at.saturating_add(TOGETHER) < end.at;
            *exit.container == *name && exit.attempt == attempt && is_before
        })
    };
    let ran = own().flat_map(|episode| &episode.calls).any(|call| {
        let container = call.container.as_deref();
        call.method == Method::StartContainer
            && call.is_good()
            && container.is_some_and(|it| !has_ended(&it.name, it.attempt))
    });
    // A start that waits for its containers dies with its sandbox, too.
    let is_needed = ran || newest.is_open();
    let mut stops = own().filter(|it| it.kind == Kind::Stop && it.ended >= end.at);
    let is_stopped = stops.any(|it| {
        let mut calls = it.calls.iter();
        calls.any(|call| call.method == Method::StopPodSandbox && call.is_good())
    });
    is_needed.then_some((death, is_stopped))
}
