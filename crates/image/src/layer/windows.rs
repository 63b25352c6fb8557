//! Large windows of zstd.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::blocking::lock;

/// Allows only one layer at a time to be decompressed with a window of up to 128 MiB.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowSemaphore(Arc<(Mutex<bool>, Condvar)>);

/// See [`WindowSemaphore`]. Dropping it releases the semaphore.
#[derive(Debug)]
pub(super) struct WindowPermit(WindowSemaphore);

impl WindowSemaphore {
    /// Blocks until it is free; returns `None` after a cancellation. The caller already has the whole blob, so that no
    /// registry determines how long others wait.
    pub(super) fn acquire(&self, cancel: &CancellationToken) -> Option<WindowPermit> {
        let (taken, ended) = &*self.0;
        let mut taken = lock(taken);
        while *taken {
            if cancel.is_cancelled() {
                return None;
            }
            // A cancellation does not notify the condition variable.
            let waited = ended.wait_timeout(taken, Duration::from_millis(100));
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken = true;
        Some(WindowPermit(self.clone()))
    }
}

impl Drop for WindowPermit {
    fn drop(&mut self) {
        let (taken, ended) = &*self.0.0;
        *lock(taken) = false;
        ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_large_window_at_a_time() {
        let (windows, cancel) = (WindowSemaphore::default(), CancellationToken::new());
        let first = windows.acquire(&cancel).expect("the first");
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| windows.acquire(&cancel));
            assert!(!second.is_finished());
            cancel.cancel();
            second.join().expect("joined")
        });
        assert!(second.is_none());
        drop(first);
        assert!(windows.acquire(&cancel).is_some());
    }
}
