//! The story of each pod, told from the CRI calls alone: why was this pod slow, or never up?
//!
//! ```text
//!   instrument::signals --end of a call--> Chronicle --+--> recorder   (ring of the last calls, in place, no task)
//!        (request path, never waits)                   |
//!                                                      +--> feed --> keeper --> episodes --> metrics, summary line, trace
//!                                                    (bounded queue,   |  ^                  journal (survives a restart)
//!                                                     tried)           |  |
//!                              admin, CLI read <---- Stories <---------+  +-- sampler: sightings of CNI plugins and OCI
//!                                                                             runtimes; receiver: the upstream's spans
//! ```
//!
//! Everything right of the feed runs on the side thread.

mod book;
mod cause;
pub mod chronicle;
pub mod doing;
#[cfg(test)]
pub(crate) mod examples;
mod journal;
pub mod keeper;
pub(crate) mod metrics;
pub mod rates;
pub mod receiver;
pub mod record;
pub mod recorder;
pub mod sampler;
#[cfg(test)]
mod script;
pub mod sessions;
mod show;
pub mod stories;
mod summary;
pub mod tables;
pub mod tell;
pub mod timeline;
mod told;
pub mod trace;
pub mod view;

pub use self::chronicle::{Chronicle, Event, RuntimeSpan};
pub use self::keeper::Keeper;
pub use self::record::Record;
pub use self::stories::Stories;
pub use self::tell::Tell;
pub use self::trace::Trace;
