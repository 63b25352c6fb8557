//! Rules on containers that the kubelet kills again and again. `words::kubelet` makes the sentences.

use std::collections::BTreeMap;
use std::time::Duration;

use super::history;
use super::kill_reason::{KillReason, kill_reason, known_kill_reason, majority_reason};
use super::kubelet::is_same_container;
use super::settled::{BACK_OFF_FORGOTTEN_AFTER, has_settled};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

/// Kills further apart than this are not one series: six times the longest back-off of the kubelet.
const MAX_GAP_BETWEEN_KILLS: Duration = Duration::from_secs(30 * 60);
/// How long after its grace period a runtime has killed a container.
const KILL_OVERDUE_AFTER: Duration = Duration::from_secs(2);

/// A series of kills of a container.
#[derive(Clone, Debug)]
pub(crate) struct KillLoop<'a> {
    pub(super) container: &'a str,
    pub(super) kills: usize,
    /// From the first kill to the last.
    pub(super) window: Duration,
    pub(super) reason: KillReason,
    /// True if the pod was stopped since, or the container runs for long now.
    pub(super) is_over: bool,
    /// How long the container has run now, if that is long and the pod was not stopped.
    pub(super) settled_for: Option<Duration>,
    /// The end of the last kill, or now if it goes on.
    pub(super) at: UnixMicros,
}

/// Returns whether the kubelet stopped a container.
pub(super) fn is_kill(call: &EpisodeCall) -> bool {
    call.method == Method::StopContainer && call.peer.is_kubelet() && call.is_good()
}

/// Returns whether a stop in flight is a kill. A stop without a reason may be the end of the pod, which shows only when the
/// sandbox is stopped.
fn is_kill_in_flight(pod: &[&Episode], call: &EpisodeCall) -> bool {
    call.is_in_flight() && known_kill_reason(pod, call).is_some()
}

/// Returns whether a stop goes on although the grace period is over and the runtime had time to kill the container.
pub(super) fn is_overdue(call: &EpisodeCall) -> bool {
    let grace = call.facts.grace_period();
    grace.is_some_and(|grace| call.took() > grace + KILL_OVERDUE_AFTER)
}

/// The newest series of kills in a pod.
pub(super) fn newest_kill_loop<'a>(
    episodes: &[&'a Episode],
    now: UnixMicros,
) -> Option<KillLoop<'a>> {
    let mut names = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut creates = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut stopped = UnixMicros::EPOCH;
    for call in history::calls(episodes) {
        let container = call.container.as_deref();
        match (call.method, container) {
            (Method::StopContainer, Some(container))
                if is_kill(call) || is_kill_in_flight(episodes, call) =>
            {
                names.entry(&container.name).or_default().push(call);
            }
            (Method::CreateContainer, Some(container)) => {
                creates.entry(&container.name).or_default().push(call);
            }
            (Method::StopPodSandbox, _) => stopped = call.began_at().max(stopped),
            _ => {}
        }
    }
    let series = names.into_iter().filter_map(|(container, kills)| {
        let creates = creates.get(container)?;
        kill_loop(episodes, container, kills, creates, stopped, now)
    });
    series.max_by_key(|series| series.at)
}

fn kill_loop<'a>(
    episodes: &[&Episode],
    container: &'a str,
    mut kills: Vec<&EpisodeCall>,
    creates: &[&EpisodeCall],
    stopped: UnixMicros,
    now: UnixMicros,
) -> Option<KillLoop<'a>> {
    let attempts = creates.iter().filter_map(|call| call.container.as_ref());
    let newest = attempts.map(|container| container.attempt).max()?;
    kills.sort_by_key(|call| call.began);
    // The kubelet repeats a stop that failed; each container is killed once.
    kills.dedup_by(|later, earlier| is_same_container(later, earlier));
    kills.retain(|call| {
        // After a kill the container is started again. The stop of its last run may be part of the pod's stop.
        let is_of_pod = is_of_attempt_from(newest, call) && stopped >= call.began_at();
        !is_of_pod && !is_of_replaced_sandbox(creates, call)
    });
    let last = kills.last()?;
    let at = last.ended_at();
    let last_break = kills
        .windows(2)
        .rposition(|pair| pair[1].began_at().since(pair[0].ended_at()) > MAX_GAP_BETWEEN_KILLS);
    let kills = &kills[last_break.map_or(0, |at| at + 1)..];
    let is_down = is_of_attempt_from(newest, last);
    if kills.len() < 2 || !(is_down || now.since(at) < BACK_OFF_FORGOTTEN_AFTER) {
        return None;
    }
    let reasons: Vec<_> = kills
        .iter()
        .map(|kill| kill_reason(episodes, kill))
        .collect();
    let is_stopped = stopped >= at;
    let settled_for = settled_for(episodes, kills, now).filter(|_| !is_stopped);
    Some(KillLoop {
        container,
        kills: kills.len(),
        window: last.began_at().since(kills[0].began_at()),
        reason: majority_reason(&reasons),
        is_over: is_stopped || settled_for.is_some(),
        settled_for,
        at,
    })
}

/// How long the run after the last of these kills has lasted, if it has ended the series.
fn settled_for(episodes: &[&Episode], kills: &[&EpisodeCall], now: UnixMicros) -> Option<Duration> {
    let last = kills.last()?;
    let starts = history::calls(episodes).filter(|call| call.has_started());
    let own = starts.filter(|call| call.container_name() == last.container_name());
    let newest = own.clone().max_by_key(|call| call.began)?;
    if newest.began_at() < last.began_at() {
        return None;
    }
    let runs = kills.iter().filter_map(|kill| {
        let mut own = own.clone();
        let start = own.find(|start| is_same_container(start, kill))?;
        Some(kill.ended_at().since(start.ended_at()))
    });
    let run = now.since(newest.ended_at());
    has_settled(run, runs.max()?).then_some(run)
}

/// Returns whether the call is about this run of its container, or a later one.
fn is_of_attempt_from(attempt: u32, call: &EpisodeCall) -> bool {
    let container = call.container.as_ref();
    container.is_none_or(|container| container.attempt >= attempt)
}

/// Returns whether the next CreateContainer after a stop is in another sandbox: then the stop was part of the replacement.
fn is_of_replaced_sandbox(creates: &[&EpisodeCall], stop: &EpisodeCall) -> bool {
    let later = creates.iter().filter(|create| create.began > stop.began);
    let next = later.min_by_key(|create| create.began);
    next.is_some_and(|next| next.sandbox_id.is_some() && next.sandbox_id != stop.sandbox_id)
}
