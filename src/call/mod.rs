//! One call, from its first byte to what is kept of it after its end.
//!
//! `proxy::instrument` makes a [`Call`]; every layer below adds what it learns, and [`steps`] are added by the built-in
//! runtime. The end of a call is an [`Outcome`], from which every signal is made. A [`CallRecord`] is a copy of both that
//! outlives the call. [`trace`] and [`episode`] say where the spans of a call belong.

pub mod episode;
mod live;
mod outcome;
mod peer;
mod record;
mod route;
pub mod steps;
pub mod times;
pub mod trace;

pub use self::live::{Call, CallStage, Sealed};
pub use self::outcome::{Ending, Outcome, Source};
pub use self::peer::{Client, Peer};
pub use self::record::{CallRecord, CallState, SpanIds};
pub use self::route::{Route, RouteReason};
