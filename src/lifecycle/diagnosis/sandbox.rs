//! Sandboxes that ended without a request to stop them, and have not been replaced.

use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::ExitReason;
use crate::lifecycle::episode_store::{Episode, SandboxEnd};
use crate::lifecycle::view;

/// Containers that end with their sandbox are told to have ended up to this time before it, in microseconds.
const EXITS_WITH_SANDBOX_WITHIN: u64 = 1_000_000;

/// The end of a sandbox without a request to stop it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxDeath<'a> {
    pub(super) end: &'a SandboxEnd,
    /// Whether it ended with its shim. containerd then reports SIGKILL for the first process, and an unknown exit for containers.
    pub(super) with_shim: bool,
}

impl SandboxDeath<'_> {
    /// Its view.
    pub(crate) fn view(&self) -> view::SandboxDeathView {
        view::SandboxDeathView {
            at_unix_us: self.end.at,
            // containerd makes one up if it loses the shim.
            code: self.end.code.filter(|_| !self.with_shim),
            with_shim: self.with_shim,
        }
    }
}

/// The end of the sandbox of this attempt, if there was no request to stop it.
pub(crate) fn death<'a>(pod: &[&'a Episode], attempt: u32) -> Option<SandboxDeath<'a>> {
    let own = || pod.iter().filter(|it| it.pod.attempt == attempt);
    let end = own().find_map(|it| it.sandbox_end.as_ref())?;
    let with_shim = own().flat_map(|it| &it.exits).any(|exit| {
        let is_unknown = exit.reason == ExitReason::Unknown && !exit.stop_requested;
        is_unknown && exit.at.abs_diff(end.at) <= EXITS_WITH_SANDBOX_WITHIN
    });
    // The kubelet may find the dead containers, and stop the sandbox, before containerd has reported its end.
    (with_shim || !end.stop_requested).then_some(SandboxDeath { end, with_shim })
}

/// The end of the newest sandbox of these episodes of a pod, if a container ran in it, and whether it was stopped since.
pub(super) fn newest_death<'a>(pod: &[&'a Episode]) -> Option<(SandboxDeath<'a>, bool)> {
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
            let is_before = exit.at.saturating_add(EXITS_WITH_SANDBOX_WITHIN) < end.at;
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
