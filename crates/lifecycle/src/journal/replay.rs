//! Replays the journal into the episode store.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::line::{ClosedEpisodeLine, ContainerExitLine};
use super::{JournalFiles, JournalLine};
use crate::episode_call::EpisodeCall;
use crate::episode_store::EpisodeStore;
use criscope_cri::units::times::UnixMicros;
use criscope_telemetry::BackgroundJob;

/// Longest line that is read, in bytes. Lines are written far shorter.
const MAX_LINE_LEN: u64 = 256 << 10;
/// Most running calls that are remembered. A kubelet has some dozens in flight.
const MAX_RUNNING_CALLS: usize = 1024;

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReplayResult {
    /// Episodes that were closed but not reported.
    pub(crate) unreported: Vec<u64>,
    /// Valid lines.
    pub(crate) lines: usize,
    /// Damaged lines.
    pub(crate) damaged: usize,
    /// The newest time in a line; the epoch if there is none.
    pub(crate) last: UnixMicros,
    /// Calls that had run for a while and whose end is not known.
    pub(crate) running: Vec<EpisodeCall>,
    /// Calls in flight in processes that hand over, whose end is not known.
    pub(crate) handed_over: Vec<EpisodeCall>,
    /// How much of the newer file was read, in bytes, up to the end of its last whole line.
    pub(crate) newer_len: u64,
}

/// Replays both files. The store is locked for one line at a time, so that readers are not blocked.
///
/// # Errors
/// If a file exists and cannot be read; lines before the error are kept.
pub(crate) fn replay(
    files: &JournalFiles,
    store: &Mutex<EpisodeStore>,
) -> (ReplayResult, io::Result<()>) {
    let job = BackgroundJob::JournalReplay.begin();
    let mut replayed = ReplayResult::default();
    let mut result = Ok(());
    for file in [files.older(), files.newer()] {
        replayed.newer_len = 0;
        if let Err(error) = read(&file, files.max_bytes, &mut replayed, store) {
            result = Err(error);
        }
    }
    job.count("criscope.lines", replayed.lines);
    job.count("criscope.lines.damaged", replayed.damaged);
    if let Err(error) = &result {
        job.failed("unreadable", error);
    }
    (replayed, result)
}

fn read(
    path: &Path,
    max_bytes: u64,
    replayed: &mut ReplayResult,
    store: &Mutex<EpisodeStore>,
) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // Twice the size limit: a larger file was not written by criscope.
    let file = BufReader::new(file.take(2 * max_bytes));
    read_lines(file, replayed, store, &|call| call)
}

/// Replays lines that were read before, the older first. `known` completes a call that is known better than its line.
pub(crate) fn replay_lines(
    lines: [&[u8]; 2],
    store: &Mutex<EpisodeStore>,
    known: impl Fn(EpisodeCall) -> EpisodeCall,
) -> ReplayResult {
    let mut replayed = ReplayResult::default();
    for lines in lines {
        // Reading memory does not fail.
        let _ = read_lines(lines, &mut replayed, store, &known);
    }
    replayed
}

fn read_lines(
    mut file: impl BufRead,
    replayed: &mut ReplayResult,
    store: &Mutex<EpisodeStore>,
    known: &impl Fn(EpisodeCall) -> EpisodeCall,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = (&mut file)
            .take(MAX_LINE_LEN)
            .read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(());
        }
        if line.ends_with(b"\n") {
            replayed.newer_len += n as u64;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(line) => {
                replayed.replay_line(line, store, known);
                replayed.lines += 1;
            }
            Err(_) => replayed.damaged += 1,
        }
    }
}

/// Applies a line of another process.
pub(crate) fn replay_line(line: JournalLine<'_>, store: &Mutex<EpisodeStore>) {
    ReplayResult::default().replay_line(line, store, &|call| call);
}

impl ReplayResult {
    fn replay_line(
        &mut self,
        line: JournalLine<'_>,
        store: &Mutex<EpisodeStore>,
        known: &impl Fn(EpisodeCall) -> EpisodeCall,
    ) {
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        match line {
            JournalLine::Call(call) => {
                let end = call.ended_at();
                self.last = self.last.max(end);
                self.running.retain(|other| !is_same(other, &call));
                self.handed_over.retain(|other| !is_same(other, &call));
                store.apply(known(call.into_owned()));
                // An episode that was reported before the restart is not reported again.
                for due in store.take_due(end).into_iter().filter(|due| due.root) {
                    let root = store.get(due.number).map(|t| (t.ids().root, t.began));
                    if let Some((root, began)) = root {
                        store.note_exported(due.number, root, began);
                    }
                }
                self.unreported.extend(store.take_closed());
            }
            JournalLine::Running(call) => {
                self.last = self.last.max(call.ended_at());
                if self.running.len() < MAX_RUNNING_CALLS {
                    self.running.push(call.into_owned());
                }
            }
            JournalLine::HandedOver(call) => {
                self.running.retain(|other| !is_same(other, &call));
                self.last = self.last.max(call.ended_at());
                if self.handed_over.len() < MAX_RUNNING_CALLS {
                    self.handed_over.push(call.into_owned());
                }
            }
            JournalLine::Exit(line) => {
                let ContainerExitLine {
                    pod,
                    container_id,
                    exit,
                } = line;
                self.last = self.last.max(exit.at);
                store.note_exit(&pod, container_id.as_deref(), exit.into_owned());
            }
            JournalLine::Oom(line) => {
                self.last = self.last.max(line.at);
                store.note_oom(&line.pod, &line.container, line.at, line.kills);
            }
            JournalLine::SandboxEnd(line) => {
                self.last = self.last.max(line.end.at);
                store.note_sandbox_end(&line.pod, line.end.into_owned());
            }
            JournalLine::Node(fact) => {
                self.last = self.last.max(fact.to.unwrap_or(fact.from));
                let downtime = fact.is_downtime().then_some(fact.from);
                store.note_fact(fact.into_owned());
                for call in downtime.into_iter().flat_map(|from| self.take_lost(from)) {
                    store.apply(known(call));
                }
                self.unreported.extend(store.take_closed());
            }
            JournalLine::Containers(line) => {
                store.expect(&line.pod, line.names.into_owned().into());
            }
            JournalLine::Sync(line) => {
                self.last = self.last.max(line.sync.ended);
                store.note_earlier_sync(&line.pod, line.sync.into_owned());
            }
            JournalLine::Intervention(call) => {
                self.last = self.last.max(call.ended_at());
                store.note_intervention(&call);
            }
            JournalLine::ImageLookup(lookup) => {
                self.last = self.last.max(lookup.at);
                store.note_image_lookup(lookup.into_owned());
            }
            JournalLine::Probes(line) => {
                store.put_probes(&line.container_id, line.probes.into_owned());
            }
            JournalLine::Kept(line) => {
                self.last = self.last.max(line.at);
                if line.is_gone {
                    store.note_gone_after_stop(&line.pod, line.at);
                } else {
                    store.note_found_after_stop(&line.pod, line.at);
                }
            }
            JournalLine::Pressure(line) => {
                let root = line.root();
                root.iter()
                    .for_each(|root| store.put_pressure(*root, line.pressure));
            }
            JournalLine::Closed(closed) => {
                self.last = self.last.max(closed.at);
                self.closed(&mut store, &closed);
            }
        }
    }

    /// The calls that were lost when criscope went down at this time.
    pub(crate) fn take_lost(&mut self, at: UnixMicros) -> Vec<EpisodeCall> {
        let running = std::mem::take(&mut self.running).into_iter();
        running.map(|call| call.lost_at(at)).collect()
    }

    /// Closes an episode that was reported before the restart.
    fn closed(&mut self, store: &mut EpisodeStore, line: &ClosedEpisodeLine) {
        let Some(root) = line.root() else { return };
        let unreported = self.unreported.iter().position(|number| {
            let episode = store.get(*number);
            episode.is_some_and(|episode| episode.ids().root == root)
        });
        if let Some(at) = unreported {
            let number = self.unreported.remove(at);
            let pod = store.get(number).map(|t| t.pod.clone());
            if let (Some(at), Some(pod)) = (line.deleted, pod) {
                store.note_deleted(&pod, at);
            }
            return;
        }
        let open = store
            .open_episodes()
            .find(|episode| episode.ids().root == root);
        if let Some(number) = open.map(|episode| episode.number) {
            let ended = store.get(number).map_or(UnixMicros::EPOCH, |t| t.ended);
            if let (Some(at), Some(pod)) = (line.deleted, store.get(number).map(|t| t.pod.clone()))
            {
                store.note_deleted(&pod, at);
            }
            store.close(number, line.state);
            store.note_exported(number, root, ended);
            store.take_closed();
        }
    }
}

/// Returns whether both are the same call, while it ran or at its end. Each process counts its calls anew.
pub(crate) fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    (one.seq, one.began_at()) == (other.seq, other.began_at())
}
