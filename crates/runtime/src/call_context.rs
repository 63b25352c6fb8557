//! The context of a verb: the caller's deadline and cancellation.

use std::future::Future;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{Error, Result};

/// The deadline and cancellation of a call. A verb with side effects completes regardless; they only affect the response.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    deadline: Option<Instant>,
    gone: CancellationToken,
}

impl CallContext {
    /// Creates a context with an optional deadline; `gone` is cancelled when the caller cancels.
    pub fn new(deadline: Option<Instant>, gone: CancellationToken) -> Self {
        Self { deadline, gone }
    }

    /// Returns whether the caller has cancelled or its deadline has passed.
    pub fn is_gone(&self) -> bool {
        self.gone.is_cancelled() || self.deadline.is_some_and(|at| at <= Instant::now())
    }

    /// The deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits until the caller cancels or the deadline passes, and returns the corresponding error.
    pub async fn abandoned(&self) -> Error {
        let deadline = async {
            match self.deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.gone.cancelled() => Error::Cancelled("cancelled by the caller".to_owned()),
            () = deadline => Error::Deadline("the caller's deadline exceeded".to_owned()),
        }
    }

    /// Returns the result of `work`, unless the call is abandoned first; then `work` is dropped.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::Deadline`], and those of the work.
    pub async fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = work => result,
            error = self.abandoned() => Err(error),
        }
    }
}
