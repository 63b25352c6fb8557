//! The journal of a scenario. After every step a restart of criscope must read back from it what the store knows, so each
//! expectation is also held against a store that was replayed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::episode_call::EpisodeCall;
use crate::episode_store::{CallEffect, Episode, EpisodeStore};
use crate::journal::{JournalLine, last_lines, replay_lines};
use crate::kubelet::images::ImageLookup;
use crate::tests::script;
use crate::view::EpisodeState;
use criscope_cri::units::times::UnixMicros;

/// The lines that the aggregator would have written.
#[derive(Debug, Default)]
pub(super) struct ScenarioJournal {
    lines: Vec<Vec<u8>>,
    /// How often each episode has been closed.
    closings: HashMap<u64, u32>,
}

fn text(line: &JournalLine<'_>) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("a line of JSON");
    text.push(b'\n');
    text
}

impl ScenarioJournal {
    pub(super) fn write(&mut self, line: &JournalLine<'_>) {
        self.lines.push(text(line));
    }

    /// Writes a call that was applied. A call that criscope did not see to its end was written while it ran, before the downtime was
    /// noted.
    pub(super) fn write_call(&mut self, call: &EpisodeCall, effect: CallEffect) {
        if call.is_lost {
            let line = JournalLine::running(call.clone());
            self.lines.splice(0..0, line.iter().map(text));
        } else if effect != CallEffect::Nothing {
            let line = JournalLine::call(call);
            line.iter().for_each(|line| self.write(line));
        }
    }

    /// Tells the store, and writes, that the kubelet looked for an image.
    pub(super) fn note_image_lookup(&mut self, store: &mut EpisodeStore, lookup: &ImageLookup) {
        if store.note_image_lookup(lookup.clone()) {
            self.write(&JournalLine::image_lookup(lookup));
        }
    }

    /// Writes the episodes that were closed since the last call.
    pub(super) fn write_closed(&mut self, store: &EpisodeStore, now: UnixMicros) {
        for episode in store.episodes() {
            let is_closed = episode.state != EpisodeState::Open;
            let known = self.closings.entry(episode.number).or_default();
            if is_closed && *known < episode.closings {
                *known = episode.closings;
                let root = episode.ids().root;
                let pressure = Episode::scarcity(episode);
                let pressure = pressure.map(|pressure| JournalLine::pressure(root, pressure));
                let closed = JournalLine::closed(root, episode.state, now, episode.deleted);
                let lines = pressure.iter().chain([&closed]);
                self.lines.extend(lines.map(text));
            }
        }
    }

    /// The store of a process that has read this journal instead of seeing what happened.
    pub(super) fn replay(&self, seen: &EpisodeStore) -> EpisodeStore {
        let mut store = script::store();
        store.take_over_process_state(seen);
        let store = Mutex::new(store);
        let last: Vec<_> = last_lines(seen).iter().map(text).collect();
        let lines = [self.lines.concat(), last.concat()];
        let replayed = replay_lines([&lines[0], &lines[1]], &store, |call| call);
        assert_eq!(replayed.damaged, 0, "lines of the journal");
        let mut store = store.into_inner().unwrap_or_else(PoisonError::into_inner);
        store.listed = seen.listed.clone();
        store
    }
}
