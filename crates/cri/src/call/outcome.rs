//! The outcome of a call. There is exactly one per call, and every signal is made from it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::status::Code;
use crate::units::times;

crate::named! {
    /// The four ways a call can end. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Ending {
        /// Status OK reached the caller.
        Ok = "ok",
        /// Another status reached the caller, or the response was cut off.
        Error = "error",
        /// The caller cancelled before the response was complete, and before its deadline.
        Cancelled = "cancelled",
        /// The caller's deadline passed first.
        Deadline = "deadline",
    }
}

crate::named! {
    /// Origin of the status that the caller saw.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Source {
        /// The backend.
        #[default]
        Backend = "backend",
        /// criscope, because the backend did not answer.
        Proxy = "proxy",
        /// None was sent: the caller had cancelled.
        Caller = "caller",
    }
}

/// A caller's clock starts before ours, and `grpc-timeout` is rounded: a call dropped this close to its deadline ran into
/// it.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

/// Returns whether a call that one side gave up after `elapsed` ran into its deadline.
pub fn reached_deadline(elapsed: Duration, deadline: Option<Duration>) -> bool {
    deadline.is_some_and(|d| elapsed + DEADLINE_SLACK.min(d / 10) >= d)
}

/// The one end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The ending.
    pub ending: Ending,
    /// The status that the caller saw; `Cancelled` or `DeadlineExceeded` if it did not wait for one.
    #[serde(serialize_with = "write_code", deserialize_with = "read_code")]
    pub code: Code,
    /// The origin of that status.
    #[serde(default, skip_serializing_if = "Source::is_backend")]
    pub source: Source,
    /// The error message, already scrubbed of secrets and cut (see [`crate::redact`]).
    #[serde(rename = "error", default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// From the request headers to this end.
    #[serde(with = "times::micros")]
    pub elapsed: Duration,
}

fn write_code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i32(*code as i32)
}

fn read_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    i32::deserialize(deserializer).map(Code::from)
}

impl Source {
    /// Returns whether the backend sent the status. Most do, and the journal does not say so each time.
    fn is_backend(&self) -> bool {
        *self == Self::Backend
    }
}

crate::serde_by_name!(Ending, Source);
