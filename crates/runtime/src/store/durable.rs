//! A record in memory and on disk. Readers never wait for the disk: a list must not hang because one record is being written to a
//! hanging disk.
//!
//! All work on the files of an object runs on the pool of blocking threads, one piece at a time: an object with a hanging disk
//! blocks one thread of the pool, regardless of how many calls it receives.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Mutex;

use super::disk::{self, Written};
use crate::error::Result;
use crate::sandbox::teardown::blocking;

/// A record in memory and on disk; see the module documentation.
#[derive(Debug)]
pub(super) struct Durable<T> {
    dir: PathBuf,
    copy: PathBuf,
    now: RwLock<Arc<T>>,
    /// Serialises work on the files and changes of the record, so that memory and disk change in the same order.
    file_lock: Arc<Mutex<()>>,
}

impl<T: Clone + Written + Send + Sync + 'static> Durable<T> {
    /// Creates a record that has been or is about to be written.
    pub(super) fn new(dir: PathBuf, copy: PathBuf, record: T) -> Self {
        Self {
            dir,
            copy,
            now: RwLock::new(Arc::new(record)),
            file_lock: Arc::default(),
        }
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The current record.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs work on the files of the object while holding their lock, which is released when the work ends, even if the future is
    /// dropped earlier.
    pub(super) async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let guard = Arc::clone(&self.file_lock).lock_owned().await;
        let (_guard, done) = blocking(move || Ok((guard, work()))).await?;
        done
    }

    /// Changes the record, on disk first. `then` is called with the new record before any further change.
    ///
    /// # Errors
    /// If the record cannot be written; it is then unchanged.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut T),
        then: impl FnOnce(&T),
    ) -> Result<Arc<T>> {
        let guard = Arc::clone(&self.file_lock).lock_owned().await;
        let mut next = T::clone(&self.get());
        change(&mut next);
        let next = Arc::new(next);
        let (_guard, written) = self.write(guard, &next).await?;
        written?;
        self.replace(&next, then);
        Ok(next)
    }

    /// Changes the record in memory first, for facts that hold even if they cannot be written. Returns `None` if `change`
    /// returned false and nothing was changed, otherwise the result of the write.
    pub(super) async fn note(
        &self,
        change: impl FnOnce(&mut T) -> bool,
        then: impl FnOnce(&T),
    ) -> Option<Result<()>> {
        let guard = Arc::clone(&self.file_lock).lock_owned().await;
        let mut next = T::clone(&self.get());
        if !change(&mut next) {
            return None;
        }
        let next = Arc::new(next);
        // Before the write: readers must see the fact even while the disk hangs.
        self.replace(&next, then);
        let written = self.write(guard, &next).await;
        Some(written.and_then(|(_guard, written)| written))
    }

    async fn write(
        &self,
        guard: tokio::sync::OwnedMutexGuard<()>,
        next: &Arc<T>,
    ) -> Result<(tokio::sync::OwnedMutexGuard<()>, Result<()>)> {
        let (dir, copy, next) = (self.dir.clone(), self.copy.clone(), Arc::clone(next));
        blocking(move || Ok((guard, disk::write(&dir, &copy, &*next)))).await
    }

    fn replace(&self, next: &Arc<T>, then: impl FnOnce(&T)) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(next);
        then(next);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kept(dir: &Path) -> Durable<i32> {
        Durable::new(dir.to_owned(), dir.join("copy.json"), 1)
    }

    #[tokio::test]
    async fn the_record_can_be_read_during_a_change() {
        let dir = tempfile::tempdir().expect("dir");
        let kept = Arc::new(kept(dir.path()));
        let reader = Arc::clone(&kept);
        let read = move || {
            *std::thread::spawn(move || *reader.get())
                .join()
                .as_ref()
                .expect("read")
        };
        let changed = kept.change(|now| *now = read() + 1, |_| ());
        changed.await.expect("room");
        assert_eq!(*kept.get(), 2);
        for name in [disk::RECORD, "copy.json"] {
            let text = fs::read_to_string(dir.path().join(name));
            assert_eq!(text.expect("written"), "2", "{name}");
        }
    }

    #[tokio::test]
    async fn an_unwritable_change_fails_but_a_note_is_kept_in_memory() {
        let dir = tempfile::tempdir().expect("dir");
        let kept = kept(&dir.path().join("none"));
        let changed = kept.change(|now| *now = 2, |_| ()).await;
        changed.expect_err("no room");
        assert_eq!(*kept.get(), 1);
        let noted = kept.note(|now| std::mem::replace(now, 3) == 1, |_| ());
        assert!(noted.await.expect("a change").is_err());
        assert_eq!(*kept.get(), 3);
        assert!(kept.note(|now| *now == 1, |_| ()).await.is_none());
    }

    #[tokio::test]
    async fn hanging_work_blocks_one_thread_and_no_reader() {
        let dir = tempfile::tempdir().expect("dir");
        let kept = Arc::new(kept(dir.path()));
        let (release, hangs) = std::sync::mpsc::sync_channel::<()>(1);
        let (begun, first) = tokio::sync::oneshot::channel();
        let work = kept.work(move || {
            let _ = begun.send(());
            let _ = hangs.recv();
            Ok(())
        });
        let mut work = Box::pin(work);
        tokio::select! {
            _ = &mut work => panic!("it hangs"),
            begun = first => begun.expect("it has started"),
        }
        // The future is dropped; the work continues and holds the lock.
        drop(work);
        assert!(kept.file_lock.try_lock().is_err());
        assert_eq!(*kept.get(), 1);
        drop(release);
        kept.work(|| Ok(())).await.expect("the next");
    }
}
