//! Sandboxes that ended without a request to stop them, and have not been replaced.

use std::time::Duration;

use crate::episode_store::{Episode, ExitRecord, SIGKILL_EXIT_CODE, SandboxEnd};
use crate::view;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ExitReason;

/// Containers that end with their sandbox may be reported to have ended this long before it.
const EXITS_WITH_SANDBOX_WITHIN: Duration = Duration::from_secs(1);

/// The end of a sandbox without a request to stop it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxDeath<'a> {
    pub(super) end: &'a SandboxEnd,
    /// True if its shim ended too. containerd then reports SIGKILL for the first process, and an unknown exit for containers.
    pub(super) with_shim: bool,
    /// True if no end of a container is known from then on: its shim may have died as well.
    pub(super) is_alone: bool,
    /// True if containers ended at that time too, all by SIGKILL: containerd ends the remaining processes when a shim dies. The end of the init of a
    /// shared PID namespace looks the same.
    pub(super) is_with_containers: bool,
}

impl SandboxDeath<'_> {
    /// Returns whether a container ended with the sandbox.
    pub(super) fn is_end_of(&self, exit: &ExitRecord) -> bool {
        exit.at.abs_diff(self.end.at) <= EXITS_WITH_SANDBOX_WITHIN
    }

    /// The view of this death.
    pub(crate) fn view(&self) -> view::SandboxDeathView {
        view::SandboxDeathView {
            at_unix_us: self.end.at,
            // containerd makes up a code if it loses the shim.
            code: self.end.code.filter(|_| !self.with_shim),
            with_shim: self.with_shim,
        }
    }
}

/// The end of the sandbox of this attempt, if there was no request to stop it.
pub(crate) fn death<'a>(pod: &[&'a Episode], attempt: u32) -> Option<SandboxDeath<'a>> {
    let own = pod.iter().filter(|episode| episode.pod.attempt == attempt);
    let mut ends = own
        .clone()
        .filter_map(|episode| episode.sandbox_end.as_ref());
    let end = ends.next()?;
    let with_shim = own.clone().flat_map(|episode| &episode.exits).any(|exit| {
        let is_unknown = exit.reason == ExitReason::Unknown && !exit.stop_requested;
        is_unknown && exit.at.abs_diff(end.at) <= EXITS_WITH_SANDBOX_WITHIN
    });
    // The kubelet makes no sandbox again for a pod that it has stopped.
    let is_replaced = pod.iter().any(|episode| episode.pod.attempt > attempt);
    if !with_shim && !is_replaced && was_being_stopped(pod, attempt, end) {
        return None;
    }
    // The kubelet may find the dead containers, and stop the sandbox, before containerd has reported its end.
    let killed = own.clone().flat_map(|episode| &episode.exits).any(|exit| {
        let is_killed = exit.code == SIGKILL_EXIT_CODE && !exit.is_out_of_memory();
        let is_at_end = exit.at.abs_diff(end.at) <= EXITS_WITH_SANDBOX_WITHIN;
        is_killed && !exit.stop_requested && is_at_end
    });
    let mut later_exits = own.flat_map(|episode| &episode.exits);
    let is_alone = !later_exits.any(|exit| exit.at + EXITS_WITH_SANDBOX_WITHIN >= end.at);
    (with_shim || !end.stop_requested).then_some(SandboxDeath {
        end,
        with_shim,
        is_alone,
        is_with_containers: killed && end.code == Some(SIGKILL_EXIT_CODE),
    })
}

/// Returns whether the kubelet had begun to stop the pod: the last of its containers to be started or stopped was stopped. An eviction
/// ends the sandbox before StopPodSandbox.
fn was_being_stopped(pod: &[&Episode], attempt: u32, end: &SandboxEnd) -> bool {
    let own = pod.iter().filter(|episode| episode.pod.attempt == attempt);
    let calls = own.flat_map(|episode| &episode.calls);
    let before = calls.filter(|call| {
        let is_of_container = matches!(call.method, Method::StartContainer | Method::StopContainer);
        is_of_container && call.began_at() <= end.at
    });
    let last = before.max_by_key(|call| call.began);
    last.is_some_and(|call| call.method == Method::StopContainer && call.peer.is_kubelet())
}

/// The end of the newest sandbox of these episodes of a pod, if a container ran in it, and whether it was stopped since.
pub(super) fn newest_death<'a>(pod: &[&'a Episode]) -> Option<(SandboxDeath<'a>, bool)> {
    let starts = pod.iter().filter(|episode| episode.kind == Kind::Start);
    let newest = starts.max_by_key(|start| (start.pod.attempt, start.began))?;
    let death = death(pod, newest.pod.attempt)?;
    let end = death.end;
    let own = pod
        .iter()
        .filter(|episode| episode.pod.attempt == newest.pod.attempt);
    let exits = own.clone().flat_map(|episode| &episode.exits);
    let earlier_exits = exits.filter(|exit| {
        let has_long_ended = exit.at + EXITS_WITH_SANDBOX_WITHIN < end.at;
        has_long_ended || exit.stop_requested && exit.at <= end.at
    });
    let starts = own.clone().flat_map(|episode| &episode.calls);
    let ran = starts.filter(|call| call.has_started()).any(|start| {
        let mut exits = earlier_exits.clone();
        !exits.any(|exit| exit.is_of_start(start))
    });
    // A start that waits for its containers dies with its sandbox, too.
    let is_needed = ran || newest.is_open();
    let mut stops = own.filter(|episode| episode.kind == Kind::Stop && episode.ended >= end.at);
    let is_stopped = stops.any(|stop| {
        let mut calls = stop.calls.iter();
        calls.any(|call| call.method == Method::StopPodSandbox && call.is_good())
    });
    is_needed.then_some((death, is_stopped))
}
