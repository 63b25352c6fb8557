//! Times of an episode: its phases, and the init containers that calls waited for.

use std::time::Duration;

use super::Episode;
use super::exits::ExitRecord;
use crate::diagnosis;
use crate::episode_call::EpisodeCall;
use crate::timeline::{self, EpisodePhase, PhaseInterval, PhaseShares};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

impl Episode {
    /// Containers that exited successfully before the next one was created: init containers, which the CRI does not mark.
    fn waited_for(&self) -> impl Iterator<Item = &ExitRecord> {
        let exits = self.exits.iter().filter(|exit| exit.is_good());
        exits.filter(|exit| {
            let mut calls = self.calls.iter();
            let is_followed = calls.any(|call| {
                call.method == Method::CreateContainer
                    && call.began_at() >= exit.at
                    && !exit.is_of(call)
                    && self.is_first(call, exit.at)
            });
            self.kind != Kind::Stop && is_followed
        })
    }

    /// Returns whether the call creates a container that had not run in this sandbox before that time.
    fn is_first(&self, call: &EpisodeCall, by: UnixMicros) -> bool {
        if self.kind != Kind::Start {
            return call.container.as_ref().is_some_and(|c| c.attempt == 0);
        }
        let mut calls = self.calls.iter();
        !calls.any(|earlier| {
            let starts = earlier.method == Method::StartContainer && earlier.is_good();
            starts && earlier.ended_at() <= by && earlier.container_name() == call.container_name()
        })
    }

    /// The exit of the last started container, if it had succeeded by then.
    pub(super) fn last_done(&self, by: UnixMicros) -> Option<&ExitRecord> {
        let mut starts = self.calls.iter().rev();
        let last = starts.find(|c| c.method == Method::StartContainer)?;
        let name = last.container_name()?;
        let mut exits = self.exits.iter().rev();
        exits.find(|exit| *exit.container == *name && exit.is_good() && exit.at <= by)
    }

    /// Counts the time since then as waiting for this container.
    pub(super) fn wait_for(&mut self, exit: ExitRecord, since: UnixMicros) {
        self.began = self.began.min(since);
        self.note_exit(exit);
    }

    /// Time per phase, up to the end of the last call.
    pub(crate) fn shares(&self) -> PhaseShares {
        self.shares_to(self.ended)
    }

    /// Time per phase, up to this time.
    pub(crate) fn shares_to(&self, end: UnixMicros) -> PhaseShares {
        let mut intervals = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let (begin, end) = (call.began_at(), call.ended_at());
            let phase = diagnosis::phase(call);
            intervals.push(PhaseInterval { begin, end, phase });
            let network = call.work.iter().filter(|s| s.is_network());
            intervals.extend(network.map(|seen| PhaseInterval {
                begin: seen.began.max(begin),
                end: seen.ended.min(end),
                phase: EpisodePhase::Network,
            }));
        }
        intervals.extend(self.waited_for().map(|exit| PhaseInterval {
            begin: exit.at - exit.ran,
            end: exit.at,
            phase: EpisodePhase::InitContainer,
        }));
        intervals.extend(self.checkpoints.iter().map(|checkpoint| PhaseInterval {
            begin: checkpoint.began,
            end: checkpoint.ended,
            phase: EpisodePhase::Checkpoint,
        }));
        let mut shares = timeline::divide(self.began, end, &intervals);
        timeline::add_forgotten(&mut shares, &self.forgotten);
        shares
    }

    /// The containers that calls waited for, in order.
    pub(crate) fn waits(&self) -> Vec<InitContainerWait<'_>> {
        let mut end = self.began;
        let mut waits = Vec::new();
        for (before, call) in self.calls.iter().enumerate() {
            if let Some(exit) = self.waited_in_gap(end, call) {
                let began = end.max(exit.at - exit.ran);
                waits.push(InitContainerWait {
                    before,
                    began,
                    took: exit.at.since(began),
                    container: &exit.container,
                });
            }
            end = end.max(call.ended_at());
        }
        waits
    }

    /// The init container that the call waited for, in a gap that begins at `from`: one that ran for at least half of the gap
    /// and exited successfully in it.
    fn waited_in_gap(&self, from: UnixMicros, call: &EpisodeCall) -> Option<&ExitRecord> {
        let to = call.began_at();
        self.exits
            .iter()
            .filter(|exit| exit.is_good())
            .find(|exit| {
                let is_within = exit.at > from && exit.at <= to;
                let ran = exit.at.since(from.max(exit.at - exit.ran));
                is_within && !exit.is_of(call) && 2 * ran >= to.since(from)
            })
    }
}

/// An init container that a call waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitContainerWait<'a> {
    /// The index of the call in the episode.
    pub(crate) before: usize,
    /// Begin of the wait.
    pub(crate) began: UnixMicros,
    /// Length of the wait.
    pub(crate) took: Duration,
    pub(crate) container: &'a str,
}
