//! Why a pod was slow, or is not ready: the most important fact. The rules choose a [`Cause`], a function of episodes and
//! the time; its `Display`, in `words`, is the sentence that people read.

mod cause;
mod crash;
mod failure;
mod slow;
#[cfg(test)]
mod tests;
mod words;
mod work;

pub(super) use self::cause::Cause;
use self::cause::{InFlight, Progress};
pub(super) use self::crash::marks as crash_loops;
use super::episode_call::{EpisodeCall, millis};
use super::episode_store::Episode;
use super::view::State;
use crate::call::Ending;
use crate::call::episode::Kind;
use crate::cri::Method;

/// A call in flight is the headline after this time, in milliseconds.
const WORTH: f64 = 1_000.0;
/// A pause between calls of an incomplete start is the headline after this time, in milliseconds.
const SILENCE: f64 = 5_000.0;

/// The cause of an episode. `now` in microseconds since 1970.
pub(super) fn of_episode(episode: &Episode, now: u64) -> Cause<'_> {
    let in_flight = longest_in_flight(episode);
    if let Some(call) = in_flight.filter(|call| call.duration_ms() >= WORTH) {
        return Cause::InFlight(waits(episode, call));
    }
    if let Some(call) = failure::unresolved(episode) {
        return Cause::Failing(failure::of(episode, call, now, false));
    }
    if let Some(silent) = silence(episode, now) {
        return silent;
    }
    if episode.state == State::Failed && episode.kind == Kind::Start {
        let after = episode.duration_ms();
        return Cause::GivenUp { after };
    }
    if let Some(call) = failure::worst(episode) {
        return Cause::Recovered {
            failure: failure::of(episode, call, now, true),
            kind: episode.kind,
            took: episode.duration_ms(),
        };
    }
    let time = slow::of(episode);
    match crash::afterwards(episode) {
        Some(exit) => Cause::Exited {
            exit,
            then: Box::new(time),
        },
        None => time,
    }
}

fn longest_in_flight(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().filter(|c| c.is_in_flight());
    calls.max_by_key(|call| call.elapsed())
}

fn waits<'a>(episode: &Episode, call: &'a EpisodeCall) -> InFlight<'a> {
    let most = || work::most(&std::iter::once(call));
    InFlight {
        call,
        work: match work::at_work(call) {
            Some(worker) => Progress::Now(worker),
            None => most().map_or(Progress::Unseen, Progress::SoFar),
        },
        failures: episode.failures,
    }
}

/// The kubelet has not made the next call.
fn silence(episode: &Episode, now: u64) -> Option<Cause<'_>> {
    let started = work::calls_of(episode, Method::StartContainer).any(|c| c.has_ended(Ending::Ok));
    let waits = episode.state == State::Open && episode.kind == Kind::Start && !started;
    let after = episode.calls.back().filter(|_| waits)?;
    let age = millis(now.saturating_sub(episode.began));
    let since = age - episode.duration_ms();
    let is_silent = since >= SILENCE && longest_in_flight(episode).is_none();
    is_silent.then_some(Cause::Silent { after, since })
}

/// The cause that matters most now for a pod; `None` without episodes.
pub(super) fn of_pod<'a>(episodes: &[&'a Episode], now: u64) -> Option<Cause<'a>> {
    // Of several pods of one name the newest counts.
    let newest = episodes.iter().max_by_key(|e| e.began)?;
    let own = episodes.iter().copied();
    let own: Vec<_> = own.filter(|e| e.pod.uid == newest.pod.uid).collect();
    let last = |wanted: &dyn Fn(&Episode) -> bool| {
        let wanted = own.iter().copied().filter(|e| wanted(e));
        wanted.max_by_key(|e| e.began)
    };
    let hangs = |e: &Episode| longest_in_flight(e).is_some_and(|c| c.duration_ms() >= WORTH);
    if let Some(episode) = last(&hangs) {
        return Some(of_episode(episode, now));
    }
    let fails = |e: &Episode| failure::unresolved(e).is_some() && e.state != State::Ok;
    let failing = last(&|e| e.state == State::Open && fails(e));
    if let Some(crash_loop) = crash::newest(&own, now)
        && failing.is_none_or(|e| crash_loop.at() > e.ended)
    {
        return Some(Cause::CrashLoop(crash_loop));
    }
    // A quick stop does not replace the headline of the start.
    let open = || last(&|e| e.state == State::Open && (e.kind != Kind::Stop || slow::is_slow(e)));
    // A failure counts until a newer episode succeeded.
    let newest = || last(&|e| e.state != State::Open);
    let failed = || newest().filter(|e| e.state == State::Failed);
    let slowest = || {
        own.iter().copied().max_by(|a, b| {
            let up = |e: &Episode| e.kind != Kind::Stop;
            up(a).cmp(&up(b)).then(a.duration().cmp(&b.duration()))
        })
    };
    let matters = failing.or_else(open).or_else(failed).or_else(slowest)?;
    Some(of_episode(matters, now))
}
