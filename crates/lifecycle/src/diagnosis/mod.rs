//! Diagnosis of pods that are slow or not ready. The rules choose the most important fact, a [`Cause`], and remarks on it from
//! episodes and the time; the `Display` of this [`Diagnosis`], in `words`, is the sentence that people read.

mod before;
mod broken_off;
mod cause;
mod checkpoints;
mod containers;
mod crash;
mod ephemeral;
mod evidence;
mod failure;
mod fault;
mod history;
mod init_retries;
mod init_runs;
mod injected;
mod interventions;
mod joined;
mod kill_reason;
mod kills;
mod kubelet;
mod late_probes;
mod lifetimes;
mod new_image;
mod next_step;
mod node;
mod oom;
mod origin;
mod outcome;
mod pods;
mod raw_message;
mod reasons;
mod reboot;
mod remarks;
mod sandbox;
mod settled;
mod slow;
mod start_failure;
mod stopped;
mod syncs;
#[cfg(test)]
mod tests;
mod waits;
mod words;
mod work;

use std::sync::Arc;
use std::time::Duration;

use self::before::Predecessor;
pub(super) use self::before::REPLACED_AFTER_DOWNTIME_WITHIN;
use self::cause::{CallInFlight, Cause, EpisodeOutcome, NotSlow, WorkProgress};
#[cfg(test)]
pub(super) use self::fault::documented as documented_faults;
use self::init_retries::InitRetries;
use self::kubelet::KubeletCause;
pub(super) use self::next_step::{NextStep, PodPath, command_word};
use self::node::{EpisodeWait, FactAt};
pub(super) use self::origin::FaultOrigin;
pub(super) use self::pods::{Diagnoser, PodVerdict};
use self::reasons::StepBeforePull;
pub(super) use self::remarks::Diagnosis;
use self::remarks::Remark;
pub(super) use self::sandbox::death;
pub(super) use self::start_failure::{COMMON_FAILURES, FAILING_PHASES, FailureCause, StartFailure};
pub(super) use self::syncs::FailingSync;
#[cfg(test)]
pub(super) use self::tests::sentences::{note, note_listed, note_step};
use super::episode_call::EpisodeCall;
use super::episode_store::Episode;
use super::kubelet::images::MissingImage;
use super::kubelet::pulls::PullInFlight;
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
    let mut diagnosis = trouble.unwrap_or_else(|| outcome_diagnosis(episode, pod, node, now));
    node::add_conditions(&mut diagnosis, episode, node, now);
    evidence::add_request_facts(&mut diagnosis, pod);
    joined::add_joined(&mut diagnosis, episode);
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
        return hook.or_else(|| Some(call_in_flight(episode, pod, call, node, now)));
    }
    let is_unresolved = !episode.is_resolved();
    if let Some(call) = failure::newest_unresolved(episode).filter(|_| is_unresolved) {
        let broken_off = broken_off::broken_off(episode, call, now, false).map(Cause::BrokenOff);
        let broken_off = broken_off.or_else(|| node::refusing_runtime(episode, call, now));
        let failure = failure::call_failure(episode, call, now, false).given_up_in(pod);
        return Some(match (episode.deleted, broken_off) {
            (Some(at), _) => {
                let ago = now.since(at);
                Cause::DeletedWithoutSandbox { ago, failure }
            }
            (None, Some(cause)) => cause,
            (None, None) => Cause::CallFails(failure),
        });
    }
    if let Some(fails) = syncs::failing_sync(episode, now) {
        return Some(Cause::Kubelet(KubeletCause::FailingSync(fails)));
    }
    if let Some(silent) = silence(episode, node, now) {
        return Some(silent);
    }
    if let Some(awaited) = episode.awaited(now) {
        return Some(outcome::awaits(awaited, pod, now));
    }
    let has_failed = episode.state == EpisodeState::Failed && episode.kind == Kind::Start;
    let last = episode.calls.back()?;
    if !has_failed || episode.started > 0 {
        return None;
    }
    let stop = history::calls(pod)
        .find(|call| history::ends_sandbox(call) && call.began_at() >= episode.began);
    let to = stop.map_or(now, |stop| stop.began_at());
    Some(Cause::NoContainerStarted {
        last,
        after: to.since(episode.began),
        stopped_by: stop.map(|stop| &*stop.peer),
        steps: if to.since(last.ended_at()) >= LONG_SILENCE {
            waits::steps_after(last, node)
        } else {
            Vec::new()
        },
    })
}

/// The failed calls of an episode that later ones made good.
fn recovery(episode: &Episode, now: UnixMicros) -> Option<Diagnosis<'_>> {
    let call = failure::most_tried(episode)?;
    let broken_off = broken_off::broken_off(episode, call, now, true);
    // A hook that the kubelet runs again, as after a shorter grace period, is part of the stop.
    if broken_off.is_none() && call.method == Method::ExecSync {
        return None;
    }
    let cause = match (broken_off, node::backend_downtime(episode, call)) {
        (Some(call), _) => Cause::BrokenOff(call),
        (None, Some(fact)) => Cause::BackendWasAway(FactAt { fact, now }),
        (None, None) => Cause::Recovered(failure::call_failure(episode, call, now, true)),
    };
    let (kind, took) = (episode.kind, episode.duration());
    Some(Diagnosis {
        remarks: vec![Remark::Ended { kind, took }],
        ..cause.into()
    })
}

/// What was the matter with an episode that has no failure left, after the end of a run that it shows, or that it follows.
fn outcome_diagnosis<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Diagnosis<'a> {
    let recovered = recovery(episode, now);
    let has_recovered = recovered.is_some();
    let time = recovered.unwrap_or_else(|| duration_diagnosis(episode, pod, node, now));
    let time = outcome::with_ends(time, episode, pod, now);
    let retries = InitRetries::from_start(episode, pod);
    let faulty = crash::faulty_exit(episode, pod).filter(|exit| {
        retries
            .as_ref()
            .is_none_or(|retries| !retries.include(exit))
    });
    if let Some(exit) = faulty {
        let run = before::run_before_restart(exit, pod, now).map(Predecessor::ContainerRun);
        let exited = run.map_or(Cause::ContainerExited(exit), Cause::StartedAgain);
        return time.led_by(exited);
    }
    if let Some(retries) = retries {
        let time = if retries.are_most() && !has_recovered {
            Cause::NotSlow(outcome::not_slow(episode, pod, now)).into()
        } else {
            time
        };
        return time.led_by(Cause::InitRetried(retries));
    }
    match before::predecessor(episode, pod, now) {
        Some(before) if leaves_room_for_predecessor(&time.cause, &before) || before.is_death() => {
            let pulls = before.ended_at().and_then(|ended| {
                failure::pulls_before_restart(ended, episode, pod, now).map(Cause::Recovered)
            });
            let mut diagnosis = time.led_by(Cause::StartedAgain(before));
            diagnosis.remarks.extend(pulls.map(Remark::Also));
            diagnosis
        }
        _ => time,
    }
}

/// What took the time of an episode without failures.
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
    let cause = of_node
        .or_else(|| outcome::never_started(episode))
        .or_else(|| kubelet::kubelet_cause(episode, pod, node.usual, now).map(Cause::Kubelet));
    match cause {
        Some(cause) => {
            let after_kill = slow_after_kill(&cause, episode, pod, node, now);
            Diagnosis {
                remarks: after_kill.map(Remark::Also).into_iter().collect(),
                ..cause.into()
            }
        }
        None => slow::largest_part(episode, pod, node, now),
    }
}

/// What took most of a restart after the kubelet had killed the container, if that took longer than the kill.
fn slow_after_kill<'a>(
    cause: &Cause<'_>,
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Option<Cause<'a>> {
    let Cause::Kubelet(KubeletCause::ContainerKilled { .. }) = cause else {
        return None;
    };
    match slow::largest_part(episode, pod, node, now).cause {
        Cause::SlowPhase(slow)
            if !matches!(slow.phase, EpisodePhase::ContainerStop | EpisodePhase::Hook) =>
        {
            Some(Cause::SlowPhase(slow))
        }
        _ => None,
    }
}

/// Returns whether the predecessor is worth a word after this cause: something runs again, and the cause does not say why.
fn leaves_room_for_predecessor(cause: &Cause<'_>, before: &Predecessor<'_>) -> bool {
    match cause {
        Cause::Recovered(_) | Cause::BackendWasAway(_) | Cause::BrokenOff(_) => !before.is_kill(),
        Cause::Kubelet(KubeletCause::ContainerKilled { .. }) | Cause::NeverStarted { .. } => false,
        Cause::NotSlow(NotSlow { end, .. }) => match end {
            EpisodeOutcome::Containers { up, .. } => !up.is_empty(),
            EpisodeOutcome::ImagePulled | EpisodeOutcome::Incomplete => false,
            _ => true,
        },
        _ => true,
    }
}

/// The phase that a call counts for. A new sandbox that failed in the network counts for the network.
pub(super) fn phase(call: &EpisodeCall) -> EpisodePhase {
    match call.method {
        Method::RunPodSandbox | Method::RestorePod
            if call.is_bad() && !failure::is_injected(call) && failure::is_in_network(call) =>
        {
            EpisodePhase::Network
        }
        method => EpisodePhase::from_method(method),
    }
}

/// A call that has been in flight for long, or that stops a container: its pod is not up any more. A retry has no news until it has
/// taken longer than the failed call.
fn hanging(episode: &Episode) -> Option<&EpisodeCall> {
    let longest = longest_in_flight(episode)?;
    let is_news = longest.took() >= LONG_CALL || longest.method == Method::StopContainer;
    (is_news && !failure::is_retry(episode, longest)).then_some(longest)
}

fn longest_in_flight(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().filter(|c| c.is_in_flight());
    calls.max_by_key(|call| call.elapsed())
}

fn call_in_flight<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    call: &'a EpisodeCall,
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Cause<'a> {
    let broken_off = broken_off::broken_off_before(episode, call, now);
    Cause::CallInFlight(CallInFlight {
        call,
        kill_reason: kill_reason::known_kill_reason(pod, call),
        hurried: stopped::hurried_stop(pod, call).filter(|_| call.method == Method::StopContainer),
        work: work::at_work(call).map_or_else(|| failure::progress(&[call]), WorkProgress::Current),
        failures: failure::tries(episode, call) - usize::from(broken_off.is_some()),
        broken_off,
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
    let found = node
        .found_image(episode.number)
        .filter(|_| after.is_new_sandbox());
    if image.is_none()
        && let Some(fact) = node::in_silence(episode, after, now)
    {
        let (fact, ago) = (FactAt { fact, now }, since);
        let waits = EpisodeWait::NextCall { after, ago };
        return Some(Cause::WaitsForNode { fact, waits });
    }
    let pull = node
        .pull_before(&episode.pod)
        .filter(|_| after.is_new_sandbox());
    Some(match (image, found, pull) {
        (Some(image), ..) => missing_image(
            image,
            since,
            pull,
            waits::steps_before_pull(image, now.since(image.last), node),
        ),
        (None, Some(found), _) => Cause::ContainerNotCreated {
            image: Arc::clone(&found.image),
            since,
            steps: waits::steps_after_image(),
        },
        (None, None, Some(pull)) => Cause::WaitsForPull {
            image: None,
            since,
            pull: pull.clone(),
        },
        (None, None, None) => Cause::NoFurtherCall {
            after,
            since,
            steps: waits::steps_after(after, node),
        },
    })
}

/// Why the kubelet does not pull an image that it did not find. `pull`: the pull of another pod; `reasons`: without one. An image that it looked for twice is not
/// going to be pulled.
fn missing_image<'a>(
    image: &MissingImage,
    since: Duration,
    pull: Option<&PullInFlight>,
    reasons: Vec<StepBeforePull>,
) -> Cause<'a> {
    let may_wait = image.error.is_none() && image.times == 1;
    match pull.filter(|_| may_wait) {
        Some(pull) => Cause::WaitsForPull {
            image: Some(Arc::clone(&image.image)),
            since,
            pull: pull.clone(),
        },
        None => Cause::ImageMissing {
            image: image.clone(),
            since,
            reasons,
        },
    }
}
