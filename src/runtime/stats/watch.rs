//! Writable layers are measured in the background, one after the other, and answers are what was measured last: a walk
//! over a million files must not hold up a call that lists statistics.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::disk::{self, Size};

/// What was measured, and when: nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// When it was done.
    pub at: i64,
    /// How much it was.
    pub size: Size,
}

/// The sizes of directories, by the ids of their containers. Measuring ends when this is dropped.
#[derive(Debug)]
pub struct DiskUsage {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<HashMap<String, Entry>>,
    /// There is one that was never measured.
    new: Notify,
    /// The walk that goes on is to end.
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    tried: bool,
    last: Option<Measured>,
}

impl DiskUsage {
    /// Begins to measure, all of them each period (containerd's `stats_collect_period` is 10 s), new ones at once. Needs
    /// a tokio runtime.
    #[must_use]
    pub fn start(period: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(run(Arc::clone(&shared), period));
        Self { shared, task }
    }

    /// Has a directory measured from now on. One that was known by this id is forgotten.
    pub fn watch(&self, id: impl Into<String>, path: impl Into<PathBuf>) {
        let entry = Entry {
            path: path.into(),
            tried: false,
            last: None,
        };
        self.shared.known().insert(id.into(), entry);
        self.shared.new.notify_one();
    }

    /// No more.
    pub fn forget(&self, id: &str) {
        self.shared.known().remove(id);
    }

    /// What all of them took when they were measured last.
    #[must_use]
    pub fn total(&self) -> Size {
        let known = self.shared.known();
        let sizes = known.values().filter_map(|entry| Some(entry.last?.size));
        sizes.fold(Size::default(), |sum, size| Size {
            bytes: sum.bytes.saturating_add(size.bytes),
            inodes: sum.inodes.saturating_add(size.inodes),
        })
    }

    /// What was measured last; `None` before the first time, and while it never succeeded.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Measured> {
        self.shared.known().get(id)?.last
    }
}

impl Drop for DiskUsage {
    fn drop(&mut self) {
        // A blocking task cannot be aborted, and would hold up the end of the process.
        self.shared.stop.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self, only_new: bool) -> Vec<(String, PathBuf)> {
        let known = self.known();
        let wanted = known.iter().filter(|(_, entry)| !(only_new && entry.tried));
        wanted
            .map(|(id, entry)| (id.clone(), entry.path.clone()))
            .collect()
    }

    async fn measure(&self, only_new: bool) {
        for (id, path) in self.ids(only_new) {
            // It may have been forgotten since, and its directory be on the way out.
            if !self.known().contains_key(&id) {
                continue;
            }
            let measured = measure(path.clone(), Arc::clone(&self.stop)).await;
            if let Some(entry) = self.known().get_mut(&id)
                && entry.path == path
            {
                entry.tried = true;
                entry.last = measured.or(entry.last);
            }
        }
    }
}

async fn run(shared: Arc<Shared>, period: Duration) {
    let mut ticks = tokio::time::interval(period.max(Duration::from_millis(1)));
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                shared.measure(false).await;
                // After a walk, however long, there is a whole period without one.
                ticks.reset();
            }
            () = shared.new.notified() => shared.measure(true).await,
        }
    }
}

async fn measure(path: PathBuf, stop: Arc<AtomicBool>) -> Option<Measured> {
    let walk = tokio::task::spawn_blocking(move || (disk::usage(&path, &stop), path));
    let (size, path) = walk.await.ok()?;
    match size {
        Ok(size) => Some(Measured {
            at: super::now(),
            size,
        }),
        Err(error) => {
            tell(&error, &path);
            None
        }
    }
}

/// A container that is being removed loses its directory first: that is no fault.
fn tell(error: &disk::Error, path: &Path) {
    match error {
        disk::Error::NotFound { .. } | disk::Error::Stopped { .. } => {}
        error => {
            tracing::debug!(%error, path = %path.display(), "a writable layer is not measured")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Instant;

    use crate::testing::PATIENCE;

    async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ready() {
                return found;
            }
            assert!(Instant::now() < deadline, "it is not measured");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_new_one_is_measured_at_once_and_again_each_period() {
        let dir = tempfile::tempdir().expect("dir");
        // No second round in the time of a test.
        let usage = DiskUsage::start(Duration::from_secs(3600));
        assert_eq!(usage.get("a"), None);
        usage.watch("a", dir.path());
        let first = until(|| usage.get("a")).await;
        assert_eq!(first.size.inodes, 1);
        assert_eq!(usage.total(), first.size);
        usage.forget("a");
        assert_eq!(usage.get("a"), None);

        let usage = DiskUsage::start(Duration::from_millis(10));
        let layer = dir.path().join("layer");
        fs::create_dir(&layer).expect("dir");
        usage.watch("a", &layer);
        usage.watch("gone", dir.path().join("none"));
        until(|| usage.get("a")).await;
        fs::write(layer.join("file"), "x").expect("write");
        until(|| usage.get("a").filter(|last| last.size.inodes == 2)).await;
        assert_eq!(usage.get("gone"), None);
        // What cannot be measured any more keeps its last size until it is forgotten.
        // In one step, or a look at it meanwhile would find less.
        fs::rename(&layer, dir.path().join("removed")).expect("rename");
        let last = until(|| usage.get("a")).await;
        assert_eq!(last.size.inodes, 2);
    }
}
