//! Who asked: how long they wait, and whether they still do.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{Error, Result};

/// The caller of a verb. A verb with side effects goes on to its end without them; they only decide what is answered.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    deadline: Option<Instant>,
    gone: CancellationToken,
}

impl CallContext {
    /// A caller that waits until then, if it says so, and is gone when the token says so.
    pub fn new(deadline: Option<Instant>, gone: CancellationToken) -> Self {
        Self { deadline, gone }
    }

    /// Whether nobody waits any more.
    pub fn is_gone(&self) -> bool {
        self.gone.is_cancelled() || self.deadline.is_some_and(|at| at <= Instant::now())
    }

    /// Until when they wait.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long they still wait; `None` is for ever.
    pub fn left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    /// Waits until nobody waits any more.
    pub async fn abandoned(&self) -> Error {
        let deadline = async {
            match self.deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.gone.cancelled() => Error::Cancelled("the caller went away".to_owned()),
            () = deadline => Error::Deadline("the caller's deadline was over first".to_owned()),
        }
    }

    /// The result of some work, or that nobody waits for it any more; then the work is dropped.
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
