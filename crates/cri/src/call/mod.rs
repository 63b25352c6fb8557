//! A call, while it is in flight and as a record.
//!
//! `proxy::instrument` creates a [`Call`]; the layers below it add their parts, the built-in runtime adds [`steps`]. Every
//! call ends in one [`Outcome`], from which metrics, log line and spans are made. A [`CallRecord`] is an immutable copy of
//! both. [`trace`] and [`episode`] determine the trace that the spans of a call belong to.

pub mod episode;
mod facts;
mod fault;
mod joined;
mod live;
mod outcome;
mod peer;
mod record;
mod route;
pub mod routine;
pub mod steps;
pub mod trace;
pub mod transfer;

pub use self::facts::CallFacts;
pub use self::fault::{FaultKind, InjectedFault};
pub use self::joined::JoinedCall;
pub use self::live::{Call, CallStage, Sealed};
pub use self::outcome::{Ending, Outcome, Source, reached_deadline};
pub use self::peer::{Client, Peer};
pub use self::record::{CallRecord, CallState, SpanIds};
pub use self::route::{Route, RouteReason};
