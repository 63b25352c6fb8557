//! Progress of pulls, for pages and metrics. Locks are held briefly, so it can be read at any time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::blocking::lock;
use super::digest::Digest;

/// Maximum number of ended pulls that are kept.
const MOST_ENDED: usize = 100;

/// The state of a layer in a pull.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LayerPhase {
    /// Waiting for a permit.
    Waiting,
    /// The blob is being downloaded, and unpacked concurrently.
    Fetching,
    /// The blob is complete.
    Unpacking,
    /// In the store.
    Done,
    /// Failed or cancelled.
    Failed,
}

/// The state of a pull.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PullPhase {
    /// Fetches manifest and configuration.
    Resolving,
    /// Fetches and unpacks layers.
    Layers,
    /// Writes the record.
    Recording,
}

/// One layer of a pull.
#[derive(Clone, Debug)]
pub struct LayerView {
    /// The diff ID.
    pub layer: Digest,
    /// The state.
    pub phase: LayerPhase,
    /// Bytes fetched, including those left by earlier pulls.
    pub bytes_done: u64,
    /// Bytes to fetch.
    pub bytes_total: u64,
    /// Bytes unpacked.
    pub bytes_unpacked: u64,
    /// Time since the last progress.
    pub idle: Duration,
}

/// A pull or an import in progress.
#[derive(Clone, Debug)]
pub struct PullView {
    /// The reference in full, or the path of an archive.
    pub reference: String,
    /// The state.
    pub phase: PullPhase,
    /// Time since it began.
    pub age: Duration,
    /// Time since the last progress.
    pub idle: Duration,
    /// Bytes fetched of all layers.
    pub bytes_done: u64,
    /// Bytes of all layers; 0 until the manifest is known.
    pub bytes_total: u64,
    /// From the base up.
    pub layers: Vec<LayerView>,
}

/// A pull or an import that has ended.
#[derive(Clone, Debug)]
pub struct EndedPull {
    /// The reference in full, or the path of an archive.
    pub reference: String,
    /// When it ended.
    pub ended: SystemTime,
    /// Bytes fetched by this pull, without layers that were present or bytes left by earlier pulls.
    pub bytes_fetched: u64,
    /// Bytes of all layers; 0 if the manifest was not known.
    pub bytes_total: u64,
}

/// Progress of one layer, shared by the pulls that share the layer.
#[derive(Debug)]
pub(super) struct LayerProgress {
    layer: Digest,
    total: u64,
    state: Mutex<LayerState>,
}

#[derive(Debug)]
struct LayerState {
    phase: LayerPhase,
    done: u64,
    unpacked: u64,
    moved: Instant,
}

impl LayerProgress {
    pub(super) fn new(layer: Digest, total: u64) -> Self {
        Self {
            layer,
            total,
            state: Mutex::new(LayerState {
                phase: LayerPhase::Waiting,
                done: 0,
                unpacked: 0,
                moved: Instant::now(),
            }),
        }
    }

    fn moved(&self, change: impl FnOnce(&mut LayerState)) {
        let mut state = lock(&self.state);
        state.moved = Instant::now();
        change(&mut state);
    }

    pub(super) fn enter(&self, phase: LayerPhase) {
        self.moved(|state| state.phase = phase);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.moved(|state| state.done += bytes);
    }

    pub(super) fn start_over(&self) {
        self.moved(|state| (state.done, state.unpacked) = (0, 0));
    }

    pub(super) fn unpacked(&self, bytes: u64) {
        self.moved(|state| state.unpacked += bytes);
    }

    pub(super) fn finished(&self) {
        self.moved(|state| (state.done, state.phase) = (self.total, LayerPhase::Done));
    }

    /// Bytes fetched, including those left by earlier pulls.
    pub(super) fn bytes_fetched(&self) -> u64 {
        lock(&self.state).done
    }

    pub(super) fn phase(&self) -> LayerPhase {
        lock(&self.state).phase
    }

    fn view(&self) -> LayerView {
        let state = lock(&self.state);
        LayerView {
            layer: self.layer.clone(),
            phase: state.phase,
            bytes_done: state.done,
            bytes_total: self.total,
            bytes_unpacked: state.unpacked,
            idle: state.moved.elapsed(),
        }
    }
}

#[derive(Debug)]
struct PullState {
    phase: PullPhase,
    moved: Instant,
    layers: Vec<Arc<LayerProgress>>,
    /// Bytes of layers that were already present.
    present: u64,
}

#[derive(Debug)]
struct Pull {
    reference: String,
    began: Instant,
    state: Mutex<PullState>,
}

/// All pulls in progress, and the most recent ones that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulls(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    running: Vec<Arc<Pull>>,
    /// Oldest first.
    ended: VecDeque<EndedPull>,
}

impl Pulls {
    /// Adds a pull to the list until the guard is dropped.
    pub(super) fn begin(&self, reference: String) -> PullGuard {
        let pull = Arc::new(Pull {
            reference,
            began: Instant::now(),
            state: Mutex::new(PullState {
                phase: PullPhase::Resolving,
                moved: Instant::now(),
                layers: Vec::new(),
                present: 0,
            }),
        });
        lock(&self.0).running.push(Arc::clone(&pull));
        PullGuard {
            all: self.clone(),
            pull,
        }
    }

    pub(super) fn views(&self) -> Vec<PullView> {
        let pulls = lock(&self.0).running.clone();
        pulls.iter().map(|pull| pull.view()).collect()
    }

    pub(super) fn ended(&self) -> Vec<EndedPull> {
        lock(&self.0).ended.iter().cloned().collect()
    }
}

impl Pull {
    fn ended(&self) -> EndedPull {
        let view = self.view();
        EndedPull {
            reference: view.reference,
            ended: SystemTime::now(),
            bytes_fetched: view.bytes_done.saturating_sub(lock(&self.state).present),
            bytes_total: view.bytes_total,
        }
    }

    fn view(&self) -> PullView {
        let state = lock(&self.state);
        let layers: Vec<_> = state.layers.iter().map(|layer| layer.view()).collect();
        let idle = layers.iter().map(|layer| layer.idle);
        PullView {
            reference: self.reference.clone(),
            phase: state.phase,
            age: self.began.elapsed(),
            idle: idle
                .chain([state.moved.elapsed()])
                .min()
                .unwrap_or_default(),
            bytes_done: layers.iter().map(|layer| layer.bytes_done).sum(),
            bytes_total: layers.iter().map(|layer| layer.bytes_total).sum(),
            layers,
        }
    }
}

/// Removes a pull from the list when it is dropped.
#[derive(Debug)]
pub(super) struct PullGuard {
    all: Pulls,
    pull: Arc<Pull>,
}

impl PullGuard {
    pub(super) fn enter(&self, phase: PullPhase) {
        let mut state = lock(&self.pull.state);
        state.phase = phase;
        state.moved = Instant::now();
    }

    pub(super) fn layers(&self, layers: Vec<Arc<LayerProgress>>) {
        let mut state = lock(&self.pull.state);
        state.present = layers.iter().map(|layer| layer.bytes_fetched()).sum();
        state.layers = layers;
        drop(state);
        self.enter(PullPhase::Layers);
    }
}

impl Drop for PullGuard {
    fn drop(&mut self) {
        let ended = self.pull.ended();
        let mut all = lock(&self.all.0);
        all.running.retain(|pull| !Arc::ptr_eq(pull, &self.pull));
        all.ended.push_back(ended);
        if all.ended.len() > MOST_ENDED {
            all.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_listed_until_it_ends() {
        let pulls = Pulls::default();
        let guard = pulls.begin("a/b:c".to_owned());
        assert_eq!(pulls.views()[0].phase, PullPhase::Resolving);
        let layer = Arc::new(LayerProgress::new(Digest::sha256(b"x"), 10));
        guard.layers(vec![Arc::clone(&layer)]);
        layer.enter(LayerPhase::Fetching);
        layer.fetched(4);
        let view = pulls.views().remove(0);
        assert_eq!((view.bytes_done, view.bytes_total), (4, 10));
        assert_eq!(view.layers[0].phase, LayerPhase::Fetching);
        layer.finished();
        assert_eq!(pulls.views()[0].layers[0].phase, LayerPhase::Done);
        drop(guard);
        assert!(pulls.views().is_empty());
        let [ended] = &pulls.ended()[..] else {
            panic!("one")
        };
        assert_eq!((ended.bytes_fetched, ended.bytes_total), (10, 10));
    }

    #[test]
    fn present_layers_do_not_count_as_fetched_and_only_recent_pulls_are_kept() {
        let pulls = Pulls::default();
        let guard = pulls.begin("a/b:c".to_owned());
        let [here, new] = [5, 10].map(|size| LayerProgress::new(Digest::sha256(b"x"), size));
        here.finished();
        new.fetched(4);
        let layers = [here, new].map(Arc::new);
        guard.layers(layers.to_vec());
        layers[1].finished();
        drop(guard);
        let ended = pulls.ended().remove(0);
        assert_eq!((ended.bytes_fetched, ended.bytes_total), (6, 15));
        for n in 0..2 * MOST_ENDED {
            drop(pulls.begin(n.to_string()));
        }
        let ended = pulls.ended();
        assert_eq!((ended.len(), &*ended[0].reference), (MOST_ENDED, "100"));
    }
}
