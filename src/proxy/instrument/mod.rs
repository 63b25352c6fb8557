//! The tower layer around every call. It opens the call's record and ends it, exactly once.
//!
//! # When each signal is emitted
//!
//! | moment | what happens |
//! |---|---|
//! | request headers read | the [`Call`] is made, enters the table of calls in flight, and [`Signals::begin`] is called |
//! | trailers-only response | the call ends when the headers are handed on |
//! | trailers | the call ends when they are handed on |
//! | the response ends without a status, or breaks off | the call ends with `Unknown`, or with the code of the break |
//! | the caller resets the stream or its connection closes | the connection drops the future or the body, and the guard ends the call as cancelled, or as deadline if that had passed |
//! | the caller's deadline passes and neither side says so | [`future`] answers `DEADLINE_EXCEEDED` shortly after |
//!
//! Each end takes the [`guard::Guard`] out of its place, so a second one finds none, and [`Signals::end`] runs exactly once per
//! call. It hands the finished record to a [`CallObserver`].
//!
//! [`Call`]: crate::call::Call
//! [`Signals::begin`]: signals::Signals::begin
//! [`Signals::end`]: signals::Signals::end

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

pub use in_flight::InFlight;
pub use service::{InstrumentLayer, Shared};

/// Takes the record of each finished call, and knows the runtime's part in a call that is stuck. Implemented above the
/// request path, so that no layer depends on what is made of the records.
pub trait CallObserver: fmt::Debug + Send + Sync {
    /// A call has ended; comes exactly once per call, on the request path: it must not block. `is_notable` tells it from an
    /// ordinary poll.
    fn ended(&self, call: &Call, outcome: &Outcome, is_notable: bool);

    /// The current activity of the runtime for a call in flight, in a few words.
    fn activity(&self, call: &Call) -> Option<String>;

    /// A call in flight has used up its deadline.
    fn overdue(&self, call: &Call);
}
