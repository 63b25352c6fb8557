//! Callbacks for each step of the store, for programs that record spans or metrics.
//!
//! A pull runs on several tasks and threads, so its observer is passed along explicitly: [`Observer::operation`] is called
//! once, on the caller's task, and the returned value receives every step of that pull or import.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::requests::{self, RequestProgress};

/// A step of a pull or an import.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// Fetching and checking manifest and configuration.
    Resolve,
    /// Making one layer available: fetching it, or waiting for another pull that does.
    Layer,
    /// Downloading a layer's blob, which is unpacked concurrently.
    Fetch,
    /// The rest of unpacking a layer once its blob is complete.
    Unpack,
    /// Asking the programs, or the policy, that verify images.
    Verify,
    /// Unwrapping the key of an encrypted layer.
    UnwrapKey,
    /// Writing the image's record.
    Record,
}

/// The verifier of an image.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verifier {
    /// The programs of [`VerifierPlugins`](crate::VerifierPlugins).
    Plugin,
    /// The policy of [`PolicyFiles`](crate::PolicyFiles).
    Policy,
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// The image may be used.
    Accepted,
    /// The image may not be used.
    Refused,
    /// The verdict is unknown, because signatures could not be fetched or read. The image is not used.
    Failed,
}

/// The outcome of a step or a pull.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The pull succeeded.
    Ok,
    /// The pull failed.
    Error,
    /// The future was dropped.
    Cancelled,
}

impl Outcome {
    pub(crate) fn from_result<T>(result: &Result<T>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(_) => Self::Error,
        }
    }
}

/// Receives the result of an import.
pub type ImportEnd = Box<dyn FnOnce(std::result::Result<usize, &Error>) + Send>;

/// A limit of requests, as a registry tells it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RateLimit {
    /// Requests that are left.
    pub remaining: u64,
    /// Requests in a window, if it tells that.
    pub limit: Option<u64>,
    /// The window, or the time until the next one.
    pub window: Option<Duration>,
    /// What the requests are counted for, such as the address of the node.
    pub source: Option<String>,
}

impl RateLimit {
    /// Returns whether little is left: a tenth, or ten of a limit that is larger than that.
    pub(crate) fn is_low(&self) -> bool {
        /// A limit that is not known has this many requests left, or more, if they are not few.
        const FEW: u64 = 10;
        let few = match self.limit {
            Some(limit) => (limit / 10).max(FEW.min(limit / 2)),
            None => FEW,
        };
        self.remaining <= few
    }
}

/// `7 of 100 requests left in 6 h, counted for 192.0.2.1`
impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.remaining)?;
        if let Some(limit) = self.limit {
            write!(f, " of {limit}")?;
        }
        f.write_str(" requests left")?;
        if let Some(window) = self.window {
            let (number, unit) = match window.as_secs() {
                hours if hours >= 3600 && hours.is_multiple_of(3600) => (hours / 3600, "h"),
                minutes if minutes >= 60 && minutes.is_multiple_of(60) => (minutes / 60, "min"),
                seconds => (seconds, "s"),
            };
            write!(f, " in {number} {unit}")?;
        }
        if let Some(source) = &self.source {
            write!(f, ", counted for {source}")?;
        }
        Ok(())
    }
}

/// Observes one store. All methods are called in the path of pulls, so they must not block.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Begins to observe a pull or an import. Called on the caller's task.
    fn operation(&self) -> Arc<dyn Steps>;

    /// The import of an archive has started. The returned function is called with the number of images at its end, or is dropped if
    /// the import is cancelled.
    fn import_started(&self, _archive: &Path) -> ImportEnd {
        Box::new(|_| ())
    }

    /// A pull has started. Imports are not pulls.
    fn pull_started(&self) {}

    /// A pull has ended.
    fn pull_ended(&self, _outcome: Outcome) {}

    /// An image has been verified.
    fn verified(&self, _by: Verifier, _verdict: Verdict) {}

    /// A registry has told its limit of requests. `registry` is the name in references, or the address of a mirror.
    fn rate_limit(&self, _registry: &str, _limit: &RateLimit) {}

    /// Bytes of a layer have arrived from a registry.
    fn bytes_fetched(&self, _bytes: u64) {}

    /// Returns what a server says with secrets hidden, for errors and remarks. Credentials of the request, and users and queries of URLs,
    /// are hidden already.
    fn server_words(&self, words: String) -> String {
        words
    }

    /// Returns the text of an error for the log. Registries and credential helpers control parts of error texts; a program
    /// that redacts its log does so here.
    fn error_text(&self, error: &Error) -> Box<str> {
        error.to_string().into()
    }
}

/// Receives the steps of one operation, or those within a step.
pub trait Steps: fmt::Debug + Send + Sync {
    /// A step begins. `name` is the beginning of a layer's diff ID.
    fn start(&self, step: Step, name: Option<&str>) -> Box<dyn ActiveStep>;

    /// Receives a warning about an image, in a sentence: the operation goes on, and people should know. Registries and images
    /// control parts of the text.
    fn remark(&self, _image: &str, _text: &str) {}

    /// Like [`Self::remark`], for a warning of a registry, or a limit of it that is nearly used up. [`Observer::server_words`] has hidden
    /// secrets in the registry's words.
    fn server_remark(&self, _image: &str, _text: &str) {}
}

/// A running step. Either [`end`](Self::end) is called, or the step is dropped together with its future: then it was
/// cancelled.
pub trait ActiveStep: Send + Sync {
    /// Receives the steps within this one.
    fn steps(&self) -> Arc<dyn Steps>;

    /// Receives the progress of this step's requests; `None` if there is no receiver.
    fn requests(&self) -> Option<Arc<dyn RequestProgress>> {
        None
    }

    /// The step has ended, and was not cancelled.
    fn end(self: Box<Self>, outcome: Outcome);
}

/// An observer that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self) -> Arc<dyn Steps> {
        Arc::new(Self)
    }
}

impl Steps for NoObserver {
    fn start(&self, _step: Step, _name: Option<&str>) -> Box<dyn ActiveStep> {
        Box::new(Self)
    }
}

impl ActiveStep for NoObserver {
    fn steps(&self) -> Arc<dyn Steps> {
        Arc::new(Self)
    }

    fn end(self: Box<Self>, _outcome: Outcome) {}
}

/// Runs `work` as a step.
pub(crate) async fn observed<T>(
    steps: &dyn Steps,
    step: Step,
    name: Option<&str>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let active = steps.start(step, name);
    let result = requests::within(&*active, work).await;
    active.end(Outcome::from_result(&result));
    result
}

/// Reports the end of a pull, including one whose future is dropped.
#[derive(Debug)]
pub(crate) struct ObservedPull {
    observer: Arc<dyn Observer>,
    outcome: Outcome,
}

impl ObservedPull {
    pub(crate) fn start(observer: &Arc<dyn Observer>) -> Self {
        observer.pull_started();
        Self {
            observer: Arc::clone(observer),
            outcome: Outcome::Cancelled,
        }
    }

    pub(crate) fn end<T>(mut self, result: &Result<T>) {
        self.outcome = Outcome::from_result(result);
    }
}

impl Drop for ObservedPull {
    fn drop(&mut self) {
        self.observer.pull_ended(self.outcome);
    }
}
