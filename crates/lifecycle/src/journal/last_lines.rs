//! What a process writes to the journal at its end: numbers that change too often to be written each time. A process that is killed
//! leaves older ones.

use super::JournalLine;
use crate::episode_store::{Episode, EpisodeStore};

/// The last lines of a process with this store.
pub(crate) fn last_lines(store: &EpisodeStore) -> Vec<JournalLine<'_>> {
    let probes = store.probes().all();
    let probes = probes.map(|(id, probes)| JournalLine::probes(id, probes));
    let syncs = store.unwritten_syncs();
    let syncs = syncs.map(|(pod, sync)| JournalLine::sync(pod, sync));
    let pressure = store.open_episodes().filter_map(|episode| {
        let pressure = Episode::scarcity(episode)?;
        Some(JournalLine::pressure(episode.ids().root, pressure))
    });
    probes.chain(syncs).chain(pressure).collect()
}
