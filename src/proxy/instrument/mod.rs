//! The tower layer around every call: opens its record and ends it exactly once.
//!
//! # When each signal is emitted
//!
//! | moment | what happens |
//! |---|---|
//! | request headers read | the [`Call`] is created, enters the table of calls in flight, and [`CallSignals::begin`] is called |
//! | trailers-only response | the call ends when the headers are forwarded |
//! | trailers | the call ends when they are forwarded |
//! | the response ends without a status, or the stream is reset | the call ends with `Unknown`, or with the code of the reset |
//! | the caller resets the stream or its connection closes | the connection drops the future or the body, and the guard ends the call as cancelled, or as deadline if that had passed |
//! | the caller's deadline passes and neither side ends the call | [`future`] answers `DEADLINE_EXCEEDED` shortly after |
//!
//! Each end takes the [`guard::CancellationGuard`] out of its option, so a second one finds none, and [`CallSignals::end`] runs exactly
//! once per call. It passes the finished record to a [`CallObserver`].
//!
//! [`Call`]: crate::call::Call
//! [`CallSignals::begin`]: signals::CallSignals::begin
//! [`CallSignals::end`]: signals::CallSignals::end

pub mod body;
pub mod classify;
mod deadline;
pub mod future;
pub mod guard;
pub mod in_flight;
pub mod service;
pub mod signals;
pub mod stuck;

use std::fmt;

use crate::call::{Call, Outcome};

pub use in_flight::InFlightCalls;
pub use service::{InstrumentService, InstrumentState};

/// Receives the record of each finished call, and knows the runtime's activity for a call that is stuck. Implemented above
/// the request path, so that no layer depends on the uses of the records.
pub trait CallObserver: fmt::Debug + Send + Sync {
    /// A call has ended. Called exactly once per call, on the request path: it must not block. `is_notable` is false for an
    /// ordinary poll.
    fn ended(&self, call: &Call, outcome: &Outcome, is_notable: bool);

    /// The runtime's current activity for a call in flight, in a few words.
    fn activity(&self, call: &Call) -> Option<String>;

    /// A call in flight has used up its deadline.
    fn overdue(&self, call: &Call);
}
