//! Why a pod was slow, or is not ready: one sentence, the most important fact first. It is a function of episodes and the
//! time.

mod crash;
mod failure;
mod slow;
#[cfg(test)]
mod tests;
mod words;
mod work;

pub(super) use self::crash::marks as crash_loops;
use self::words::subject;
use super::episode_call::{EpisodeCall, millis};
use super::episode_store::Episode;
use super::view::State;
use crate::call::Ending;
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::units::duration;

/// A call in flight is the headline after this time, in milliseconds.
const WORTH: f64 = 1_000.0;
/// A pause between calls of an incomplete start is the headline after this time, in milliseconds.
const SILENCE: f64 = 5_000.0;

/// The headline of an episode. `now` in microseconds since 1970.
pub(super) fn headline(episode: &Episode, now: u64) -> String {
    let in_flight = longest_in_flight(episode);
    if let Some(call) = in_flight.filter(|call| call.duration_ms() >= WORTH) {
        return waits(episode, call);
    }
    if let Some(call) = failure::unresolved(episode) {
        return failure::sentence(episode, call, now, false);
    }
    if let Some(text) = silence(episode, now) {
        return text;
    }
    if episode.state == State::Failed && episode.kind == Kind::Start {
        let took = duration(episode.duration_ms());
        return format!("no container was started: the pod was stopped, or given up, after {took}");
    }
    if let Some(call) = failure::worst(episode) {
        return made_good(episode, call, now);
    }
    if let Some(text) = crash::afterwards(episode) {
        return format!("{text}; {}", slow::sentence(episode));
    }
    slow::sentence(episode)
}

fn longest_in_flight(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().filter(|c| c.is_in_flight());
    calls.max_by_key(|call| call.elapsed())
}

/// A long call in flight.
fn waits(episode: &Episode, call: &EpisodeCall) -> String {
    let mut text = format!(
        "{} has taken {}",
        subject(call),
        duration(call.duration_ms())
    );
    if let Some(deadline) = call.deadline_ms() {
        text += &format!(" of its {}", duration(deadline));
    }
    let done = match work::at_work(call) {
        Some(work) => Some(format!("now in {work}")),
        None => work::most(&std::iter::once(call)).map(|work| format!("so far {work}")),
    };
    if let Some(done) = done {
        text += &format!("; {done}");
    }
    match episode.failures {
        0 => {}
        1 => text += "; 1 call failed before",
        n => text += &format!("; {n} calls failed before"),
    }
    text
}

/// The kubelet has not made the next call.
fn silence(episode: &Episode, now: u64) -> Option<String> {
    let started = work::calls_of(episode, Method::StartContainer).any(|c| c.has_ended(Ending::Ok));
    let waits = episode.state == State::Open && episode.kind == Kind::Start && !started;
    let last = episode.calls.back().filter(|_| waits)?;
    let age = millis(now.saturating_sub(episode.began));
    let silence = age - episode.duration_ms();
    (silence >= SILENCE && longest_in_flight(episode).is_none()).then(|| {
        format!(
            "kubelet: no call for {} since {} ended: it waits for something outside the CRI",
            duration(silence),
            subject(last)
        )
    })
}

/// A failure that a later call resolved.
fn made_good(episode: &Episode, call: &EpisodeCall, now: u64) -> String {
    let failed = failure::sentence(episode, call, now, true);
    let took = duration(episode.duration_ms());
    match episode.kind {
        Kind::Stop => format!("{failed}; gone after {took}"),
        _ => format!("{failed}; up after {took}"),
    }
}

/// The headline of a pod: that of the episode which matters most now. `episodes` is not empty.
pub(super) fn of_pod(episodes: &[&Episode], now: u64) -> String {
    // Of several pods of one name the newest counts.
    let newest = episodes.iter().max_by_key(|e| e.began);
    let uid = newest.map_or("", |e| &*e.pod.uid);
    let own = episodes.iter().copied().filter(|e| *e.pod.uid == *uid);
    let own: Vec<_> = own.collect();
    let last = |wanted: &dyn Fn(&Episode) -> bool| {
        let wanted = own.iter().copied().filter(|e| wanted(e));
        wanted.max_by_key(|e| e.began)
    };
    let hangs = |e: &Episode| longest_in_flight(e).is_some_and(|c| c.duration_ms() >= WORTH);
    if let Some(episode) = last(&hangs) {
        return headline(episode, now);
    }
    let fails = |e: &Episode| failure::unresolved(e).is_some() && e.state != State::Ok;
    let failing = last(&|e| e.state == State::Open && fails(e));
    if let Some((text, at)) = crash::sentence(&own, now)
        && failing.is_none_or(|e| at > e.ended)
    {
        return text;
    }
    if let Some(episode) = failing {
        return headline(episode, now);
    }
    // A quick stop does not replace the headline of the start.
    let open = last(&|e| e.state == State::Open && (e.kind != Kind::Stop || slow::is_slow(e)));
    // A failure counts until a newer episode succeeded.
    let newest = last(&|e| e.state != State::Open);
    let failed = newest.filter(|e| e.state == State::Failed);
    let slowest = own.iter().copied().max_by(|a, b| {
        let up = |e: &Episode| e.kind != Kind::Stop;
        up(a).cmp(&up(b)).then(a.duration().cmp(&b.duration()))
    });
    let matters = open.or(failed).or(slowest);
    matters.map_or_else(String::new, |e| headline(e, now))
}
