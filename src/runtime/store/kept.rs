//! A record in memory and on disk. Who reads it never waits for the disk: a list must not hang because one record is being
//! written to a disk that does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;

use super::disk;
use crate::runtime::error::Result;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Kept<T> {
    dir: PathBuf,
    now: RwLock<Arc<T>>,
    /// Changes come one after the other: the last one on disk is the last one in memory.
    changes: Mutex<()>,
}

impl<T: Clone + Serialize> Kept<T> {
    /// One that is on disk already, or soon.
    pub(super) fn new(dir: PathBuf, record: T) -> Self {
        Self {
            dir,
            now: RwLock::new(Arc::new(record)),
            changes: Mutex::default(),
        }
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// As it is now.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it, on disk first. `then` sees it before anybody changes it again.
    ///
    /// # Errors
    /// It cannot be written; then nothing has changed.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut T),
        then: impl FnOnce(&T),
    ) -> Result<Arc<T>> {
        let _turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = T::clone(&self.get());
        change(&mut next);
        disk::write(&self.dir, &next)?;
        Ok(self.replace(next, then))
    }

    /// The same for what is true whether it can be written or not; nothing is done if `change` says so. Otherwise the
    /// outcome of the writing.
    pub(super) fn note(
        &self,
        change: impl FnOnce(&mut T) -> bool,
        then: impl FnOnce(&T),
    ) -> Option<Result<()>> {
        let _turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = T::clone(&self.get());
        if !change(&mut next) {
            return None;
        }
        let written = disk::write(&self.dir, &next);
        self.replace(next, then);
        Some(written)
    }

    fn replace(&self, next: T, then: impl FnOnce(&T)) -> Arc<T> {
        let next = Arc::new(next);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        then(&next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_read_while_it_is_changed() {
        let dir = tempfile::tempdir().expect("dir");
        let kept = Arc::new(Kept::new(dir.path().to_owned(), 1));
        let reader = Arc::clone(&kept);
        let read = move || {
            *std::thread::spawn(move || *reader.get())
                .join()
                .as_ref()
                .expect("read")
        };
        kept.change(|now| *now = read() + 1, |_| ()).expect("room");
        assert_eq!(*kept.get(), 2);
        assert_eq!(disk::read::<i32>(dir.path()).expect("written"), 2);
    }

    #[test]
    fn what_cannot_be_written_is_not_changed_but_noted() {
        let dir = tempfile::tempdir().expect("dir");
        let kept = Kept::new(dir.path().join("none"), 1);
        kept.change(|now| *now = 2, |_| ()).expect_err("no room");
        assert_eq!(*kept.get(), 1);
        let noted = kept.note(|now| std::mem::replace(now, 3) == 1, |_| ());
        assert!(noted.expect("a change").is_err());
        assert_eq!(*kept.get(), 3);
        assert!(kept.note(|now| *now == 1, |_| ()).is_none());
    }
}
