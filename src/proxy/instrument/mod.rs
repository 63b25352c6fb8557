//! The tower layer around every call. It makes the call's record, and ends it.
//!
//! # When each signal is emitted
//!
//! | moment | what happens |
//! |---|---|
//! | request headers read | the [`Call`] is made, enters the table of calls in flight, and [`Observe::begin`] is called |
//! | trailers-only answer | the call ends when the headers are handed on |
//! | trailers | the call ends when they are handed on |
//! | the answer ends without a status, or breaks off | the call ends with `Unknown`, or with the code of the break |
//! | the caller resets the stream or its connection closes | the connection drops the future or the body, and the guard ends the call as cancelled, or as deadline if that had passed |
//! | the caller's deadline passes and neither side says so | [`future`] answers `DEADLINE_EXCEEDED` shortly after |
//!
//! Each of these takes the [`guard::Guard`] out of its place, so that the second of two comes too late:
//! [`Observe::end`] is called exactly once per call.
//!
//! [`Call`]: crate::call::Call

pub mod body;
pub mod classify;
pub mod future;
pub mod guard;
pub mod in_flight;
pub mod layer;
pub mod service;
pub mod signals;
pub mod stuck;

use http::HeaderMap;

use crate::call::trace::TraceIds;
use crate::call::{Call, Outcome};
use crate::cri::Method;

pub use in_flight::InFlight;
pub use layer::InstrumentLayer;

/// Makes signals of calls. Called on the request path: it must not block.
pub trait Observe: Send + Sync {
    /// What these headers say of the trace of a call; `None` when traces are off.
    fn trace(&self, headers: &HeaderMap, method: Method) -> Option<TraceIds>;

    /// A call has entered.
    fn begin(&self, call: &Call);

    /// The call has ended. Comes exactly once for each `begin`.
    fn end(&self, call: &Call, outcome: &Outcome);
}
