//! How far pulls are, for pages and metrics: counted where it happens, read at any time, waited for by nobody.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::digest::Digest;

/// What is happening to a layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LayerPhase {
    /// For its turn.
    Waiting,
    /// Bytes come in, and are unpacked as they come.
    Fetching,
    /// All bytes are here.
    Unpacking,
    /// Ready, or was already.
    Done,
    /// Given up.
    Failed,
}

impl LayerPhase {
    const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Fetching,
        Self::Unpacking,
        Self::Done,
        Self::Failed,
    ];
}

/// What is happening to a pull.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PullPhase {
    /// Manifest and configuration are fetched.
    Resolving,
    /// Layers are.
    Layers,
    /// Records are written.
    Recording,
}

/// One layer of a pull in flight.
#[derive(Clone, Debug)]
pub struct LayerView {
    /// The diff id.
    pub layer: Digest,
    /// What is happening.
    pub phase: LayerPhase,
    /// Bytes fetched, those of earlier tries included.
    pub bytes_done: u64,
    /// Bytes to fetch.
    pub bytes_total: u64,
    /// Bytes unpacked.
    pub bytes_unpacked: u64,
    /// How long ago something moved.
    pub idle: Duration,
}

/// A pull in flight.
#[derive(Clone, Debug)]
pub struct PullView {
    /// The image, spelt out.
    pub reference: String,
    /// What is happening.
    pub phase: PullPhase,
    /// Since when.
    pub age: Duration,
    /// How long ago something moved.
    pub idle: Duration,
    /// Bytes fetched of all layers.
    pub bytes_done: u64,
    /// Bytes of all layers, once they are known.
    pub bytes_total: u64,
    /// From the bottom up.
    pub layers: Vec<LayerView>,
}

/// Counts for one layer. Pulls that share the layer share this.
#[derive(Debug)]
pub(super) struct LayerProgress {
    layer: Digest,
    total: u64,
    began: Instant,
    phase: AtomicU8,
    done: AtomicU64,
    unpacked: AtomicU64,
    /// Milliseconds after `began`.
    moved: AtomicU64,
}

impl LayerProgress {
    pub(super) fn new(layer: Digest, total: u64) -> Self {
        Self {
            layer,
            total,
            began: Instant::now(),
            phase: AtomicU8::new(0),
            done: AtomicU64::new(0),
            unpacked: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        }
    }

    pub(super) fn enter(&self, phase: LayerPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn start_over(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.unpacked.store(0, Ordering::Relaxed);
    }

    pub(super) fn unpacked(&self, bytes: u64) {
        self.unpacked.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn finished(&self) {
        self.done.store(self.total, Ordering::Relaxed);
        self.enter(LayerPhase::Done);
    }

    /// Bytes that have come, those of earlier tries included.
    pub(super) fn bytes_fetched(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self) -> LayerPhase {
        let phase = usize::from(self.phase.load(Ordering::Relaxed));
        LayerPhase::ALL[phase.min(LayerPhase::ALL.len() - 1)]
    }

    fn touch(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(since, Ordering::Relaxed);
    }

    fn view(&self) -> LayerView {
        let moved = Duration::from_millis(self.moved.load(Ordering::Relaxed));
        LayerView {
            layer: self.layer.clone(),
            phase: self.phase(),
            bytes_done: self.bytes_fetched(),
            bytes_total: self.total,
            bytes_unpacked: self.unpacked.load(Ordering::Relaxed),
            idle: self.began.elapsed().saturating_sub(moved),
        }
    }
}

#[derive(Debug)]
struct PullState {
    phase: PullPhase,
    moved: Instant,
    layers: Vec<Arc<LayerProgress>>,
}

#[derive(Debug)]
struct Pull {
    reference: String,
    began: Instant,
    state: Mutex<PullState>,
}

/// All pulls in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulls(Arc<Mutex<Vec<Arc<Pull>>>>);

impl Pulls {
    /// Lists a pull until what is returned is dropped.
    pub(super) fn begin(&self, reference: String) -> PullGuard {
        let pull = Arc::new(Pull {
            reference,
            began: Instant::now(),
            state: Mutex::new(PullState {
                phase: PullPhase::Resolving,
                moved: Instant::now(),
                layers: Vec::new(),
            }),
        });
        lock(&self.0).push(Arc::clone(&pull));
        PullGuard {
            all: self.clone(),
            pull,
        }
    }

    pub(super) fn views(&self) -> Vec<PullView> {
        let pulls = lock(&self.0).clone();
        pulls.iter().map(|pull| pull.view()).collect()
    }
}

impl Pull {
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

/// One pull, as long as it goes on.
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
        lock(&self.pull.state).layers = layers;
        self.enter(PullPhase::Layers);
    }
}

impl Drop for PullGuard {
    fn drop(&mut self) {
        lock(&self.all.0).retain(|pull| !Arc::ptr_eq(pull, &self.pull));
    }
}

/// Nothing that holds one of these locks can leave its data half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_listed_while_it_goes_on() {
        let pulls = Pulls::default();
        let guard = pulls.begin("a/b:c".to_owned());
        assert_eq!(pulls.views()[0].phase, PullPhase::Resolving);
        let layer = Arc::new(LayerProgress::new(Digest::of(b"x"), 10));
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
    }
}
