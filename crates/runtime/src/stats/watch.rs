//! Measures writable layers in the background; statistics report the last measurement, because a walk over a million files must
//! not delay a call that lists statistics.
//!
//! Nor must it delay the measurement of other layers. A layer that takes longer than a second moves to a second lane, where slow
//! layers are measured one at a time and each for a limited time; the size counted until then is reported. An incomplete
//! measurement is logged once per container, and counted in a metric.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::disk::{self, Counted, Missing, Size};
use crate::steps::StepRecorder;

/// The time limit of a measurement in the quick lane.
const QUICK: Duration = Duration::from_secs(1);
/// The time limit of a measurement in the slow lane.
const MAX_MEASURE_PAUSE: Duration = Duration::from_secs(60);

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The time: nanoseconds since 1970.
    pub at: i64,
    /// The size.
    pub size: Size,
}

/// The sizes of the files that containers have written, by the id of a container or of a pod. Measuring stops when this is dropped.
#[derive(Debug)]
pub struct DiskUsage {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

/// The lane in which a layer is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Quick,
    Slow,
}

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<HashMap<String, Entry>>,
    /// Notified for a layer that has not been measured yet.
    new: Notify,
    /// Notified for a layer that was too slow for the quick lane.
    slow: Notify,
    metrics: StepRecorder,
    /// Stops the walk in progress.
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Entry {
    /// Directories and files that are counted together.
    paths: Arc<[PathBuf]>,
    tried: bool,
    last: Option<Measured>,
    lane: Lane,
    /// True if an incomplete measurement was logged.
    logged: bool,
}

impl DiskUsage {
    /// Starts measuring: all layers once per period (containerd's `stats_collect_period` is 10 s), new ones immediately.
    /// Requires a tokio runtime.
    #[must_use]
    pub fn start(period: Duration, metrics: StepRecorder) -> Self {
        let shared = Arc::new(Shared {
            metrics,
            ..Shared::default()
        });
        let tasks = [Lane::Quick, Lane::Slow]
            .map(|lane| tokio::spawn(run(Arc::clone(&shared), lane, period)));
        Self { shared, tasks }
    }

    /// Adds directories and files that are counted together, replacing those with the same id.
    pub fn watch(&self, id: impl Into<String>, paths: impl Into<Arc<[PathBuf]>>) {
        let entry = Entry {
            paths: paths.into(),
            tried: false,
            last: None,
            lane: Lane::Quick,
            logged: false,
        };
        self.shared.known().insert(id.into(), entry);
        self.shared.new.notify_one();
    }

    /// Removes the directories and files of an id.
    pub fn forget(&self, id: &str) {
        self.shared.known().remove(id);
    }

    /// The sum of the last measurements.
    #[must_use]
    pub fn total(&self) -> Size {
        let known = self.shared.known();
        let sizes = known.values().filter_map(|entry| Some(entry.last?.size));
        sizes.fold(Size::default(), Size::plus)
    }

    /// The last measurement; `None` until one succeeds.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Measured> {
        self.shared.known().get(id)?.last
    }
}

impl Drop for DiskUsage {
    fn drop(&mut self) {
        // A blocking task cannot be aborted and would delay the exit of the process.
        self.shared.stop.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self, lane: Lane, only_new: bool) -> Vec<(String, Arc<[PathBuf]>)> {
        let known = self.known();
        let wanted = known
            .iter()
            .filter(|(_, entry)| entry.lane == lane && !(only_new && entry.tried));
        wanted
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.paths)))
            .collect()
    }

    async fn measure(&self, lane: Lane, only_new: bool) {
        for (id, paths) in self.ids(lane, only_new) {
            // The container may have been removed in the meantime, so that its directory is being deleted.
            if !self.known().contains_key(&id) {
                continue;
            }
            let began = Instant::now();
            let measured = measure(Arc::clone(&paths), Arc::clone(&self.stop), lane.most()).await;
            let took = began.elapsed();
            self.keep(&id, &paths, lane, measured, took);
            if lane == Lane::Slow {
                // Leaves half of the disk's time to others.
                tokio::time::sleep(took).await;
            }
        }
    }

    fn keep(
        &self,
        id: &str,
        paths: &[PathBuf],
        lane: Lane,
        measured: Option<(Measured, Option<Missing>)>,
        took: Duration,
    ) {
        let mut known = self.known();
        let Some(entry) = known.get_mut(id).filter(|entry| *entry.paths == *paths) else {
            return;
        };
        entry.tried = true;
        let Some((measured, missing)) = measured else {
            return;
        };
        if lane == Lane::Quick && missing == Some(Missing::Time) {
            // Used until the slow lane has measured it.
            entry.last = entry.last.or(Some(measured));
            entry.lane = Lane::Slow;
            entry.tried = false;
            self.slow.notify_one();
            return;
        }
        entry.last = Some(measured);
        if took < QUICK {
            entry.lane = Lane::Quick;
        }
        let Some(missing) = missing else {
            return;
        };
        if let Some(metrics) = self.metrics.metrics() {
            metrics.layers_incomplete.inc(missing);
        }
        if !std::mem::replace(&mut entry.logged, true) {
            tracing::warn!(
                target: "criscope::runtime::stats::watch",
                event = "runtime.layer",
                container.id = %id,
                reason = missing.name(),
                bytes = measured.size.bytes,
                "a writable layer could not be measured completely"
            );
        }
    }
}

impl Lane {
    fn most(self) -> Duration {
        match self {
            Self::Quick => QUICK,
            Self::Slow => MAX_MEASURE_PAUSE,
        }
    }
}

async fn run(shared: Arc<Shared>, lane: Lane, period: Duration) {
    let mut ticks = tokio::time::interval(period.max(Duration::from_millis(1)));
    let new = match lane {
        Lane::Quick => &shared.new,
        Lane::Slow => &shared.slow,
    };
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                shared.measure(lane, false).await;
                // A whole period passes after a walk, regardless of its duration.
                ticks.reset();
            }
            () = new.notified() => shared.measure(lane, true).await,
        }
    }
}

async fn measure(
    paths: Arc<[PathBuf]>,
    stop: Arc<AtomicBool>,
    most: Duration,
) -> Option<(Measured, Option<Missing>)> {
    let walk = tokio::task::spawn_blocking(move || disk::count(&paths, &stop, most));
    match walk.await.ok()? {
        Ok(Counted { size, missing }) => {
            let at = super::now();
            Some((Measured { at, size }, missing))
        }
        Err(error) => {
            log_failure(&error);
            None
        }
    }
}

/// Logs a failure, unless the container is being removed.
fn log_failure(error: &disk::Error) {
    match error {
        disk::Error::NotFound { .. } | disk::Error::Stopped { .. } => {}
        error => {
            tracing::debug!(target: "criscope::runtime::stats::watch", { error.message = %error }, "a writable layer could not be measured")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::testing::PATIENCE;

    async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ready() {
                return found;
            }
            assert!(Instant::now() < deadline, "not measured in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_new_layer_is_measured_immediately_and_then_each_period() {
        let dir = tempfile::tempdir().expect("dir");
        // The period is longer than the test.
        let usage = DiskUsage::start(Duration::from_secs(3600), StepRecorder::default());
        assert_eq!(usage.get("a"), None);
        usage.watch("a", [dir.path().to_owned()]);
        let first = until(|| usage.get("a")).await;
        assert_eq!(first.size.inodes, 1);
        assert_eq!(usage.total(), first.size);
        usage.forget("a");
        assert_eq!(usage.get("a"), None);

        let usage = DiskUsage::start(Duration::from_millis(10), StepRecorder::default());
        let layer = dir.path().join("layer");
        fs::create_dir(&layer).expect("dir");
        usage.watch("a", [layer.clone()]);
        usage.watch("gone", [dir.path().join("none")]);
        until(|| usage.get("a")).await;
        fs::write(layer.join("file"), "x").expect("write");
        until(|| usage.get("a").filter(|last| last.size.inodes == 2)).await;
        assert_eq!(usage.get("gone"), None);
        // A layer that can no longer be measured keeps its last size until it is forgotten. Renamed in one step, because a
        // concurrent walk would find a smaller size.
        fs::rename(&layer, dir.path().join("removed")).expect("rename");
        let last = until(|| usage.get("a")).await;
        assert_eq!(last.size.inodes, 2);
    }

    #[tokio::test]
    async fn a_slow_layer_leaves_the_quick_ones_and_comes_back() {
        let shared = Shared::default();
        let entry = |path: &str| Entry {
            paths: [PathBuf::from(path)].into(),
            tried: false,
            last: None,
            lane: Lane::Quick,
            logged: false,
        };
        shared.known().insert("a".to_owned(), entry("/a"));
        let size = |bytes| Measured {
            at: 1,
            size: Size { bytes, inodes: 1 },
        };
        let keep = |lane, bytes, missing, took| {
            let measured = Some((size(bytes), missing));
            shared.keep("a", &["/a".into()], lane, measured, took);
            let known = shared.known();
            let entry = &known["a"];
            (
                entry.lane,
                entry.last.map(|last| last.size.bytes),
                entry.logged,
            )
        };
        let late = Some(Missing::Time);
        assert_eq!(
            keep(Lane::Quick, 5, late, QUICK),
            (Lane::Slow, Some(5), false)
        );
        assert_eq!(shared.ids(Lane::Quick, false), []);
        // The partial size is used, and reported as incomplete.
        assert_eq!(
            keep(Lane::Slow, 9, late, MAX_MEASURE_PAUSE),
            (Lane::Slow, Some(9), true)
        );
        let short = Duration::from_millis(1);
        assert_eq!(
            keep(Lane::Slow, 2, None, short),
            (Lane::Quick, Some(2), true)
        );
    }
}
