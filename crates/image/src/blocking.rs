//! Work on blocking threads, and locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::{Error, Result};

/// Runs blocking work on a separate thread. The work completes even if the future is dropped.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|_| Err(Error::internal("a blocking task has ended early")))
}

/// Locks a mutex. Poisoning is ignored: no code panics while it holds one of these with data half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
