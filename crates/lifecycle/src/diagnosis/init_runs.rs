//! Runs of init containers between the calls of a start. The run after a failed one is a restart, an episode with calls and exits of its
//! own, which the phases of the start do not have.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{history, outcome};
use crate::episode_store::{Episode, ExitRecord};
use crate::timeline::EpisodePhase;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// The runs of init containers between the calls of a start, in order.
#[derive(Debug)]
pub(super) struct InitRuns<'a> {
    runs: Vec<InitRun<'a>>,
}

/// The part of a run that lies between two calls.
#[derive(Debug)]
struct InitRun<'a> {
    container: &'a str,
    from: UnixMicros,
    to: UnixMicros,
}

impl<'a> InitRuns<'a> {
    /// The runs in the time of a start. Other episodes have none.
    pub(super) fn from_start(start: &Episode, pod: &[&'a Episode]) -> Self {
        let own = pod.iter().copied();
        let own: Vec<_> = own
            .filter(|other| other.pod.attempt == start.pod.attempt && start.kind == Kind::Start)
            .collect();
        let exits = history::exits(&own).filter(|exit| is_of_init(exit, &own));
        let mut runs: Vec<_> = exits.flat_map(|exit| between_calls(exit, start)).collect();
        runs.sort_by_key(|run| run.from);
        let mut end = UnixMicros::EPOCH;
        for run in &mut runs {
            run.from = run.from.max(end);
            end = end.max(run.to);
        }
        runs.retain(|run| run.from < run.to);
        Self { runs }
    }

    /// The phase that took most of the start, and its time.
    pub(super) fn longest_phase(&self, start: &Episode) -> Option<(EpisodePhase, Duration)> {
        let mut shares = start.shares();
        let (init, outside) = (
            EpisodePhase::InitContainer as usize,
            EpisodePhase::OutsideCri as usize,
        );
        let time: Duration = self.runs.iter().map(InitRun::took).sum();
        let unseen = time.saturating_sub(shares[init]).min(shares[outside]);
        shares[init] += unseen;
        shares[outside] -= unseen;
        let shares = EpisodePhase::ALL.into_iter().zip(shares);
        shares.max_by_key(|(_, time)| *time)
    }

    /// The end of the last run that ended after `from` and no later than `to`; `from` if there is none.
    pub(super) fn idle_since(&self, from: UnixMicros, to: UnixMicros) -> UnixMicros {
        let ends = self.runs.iter().map(|run| run.to);
        let within = ends.filter(|end| *end > from && *end <= to);
        within.max().unwrap_or(from)
    }

    /// The number of containers, and the one that ran longest.
    pub(super) fn longest_container(&self) -> (usize, Option<(&'a str, Duration)>) {
        let mut containers = BTreeMap::<_, Duration>::new();
        for run in &self.runs {
            *containers.entry(run.container).or_default() += run.took();
        }
        let longest = containers.iter().max_by_key(|(_, took)| **took);
        let longest = longest.map(|(name, took)| (*name, *took));
        (containers.len(), longest)
    }
}

impl InitRun<'_> {
    fn took(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// Returns whether this is a run of an init container: one after which other containers were started, or a failed one before it.
fn is_of_init(exit: &ExitRecord, own: &[&Episode]) -> bool {
    let is_failed = exit.code != 0 && !exit.stop_requested;
    let mut later =
        history::exits(own).filter(|later| later.container == exit.container && later.at > exit.at);
    outcome::is_init(exit, own) || is_failed && later.any(|later| outcome::is_init(later, own))
}

/// The parts of a run between the calls of a start.
fn between_calls<'a>(exit: &'a ExitRecord, start: &Episode) -> Vec<InitRun<'a>> {
    let (began, mut end) = (exit.at - exit.ran, start.began);
    let mut runs = Vec::new();
    for call in &start.calls {
        runs.push(InitRun {
            container: &exit.container,
            from: began.max(end),
            to: exit.at.min(call.began_at()),
        });
        end = end.max(call.ended_at());
    }
    runs.retain(|run| run.from < run.to);
    runs
}
