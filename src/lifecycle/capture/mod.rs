//! Captures: what a node knew at one moment, in a file that another machine reads (`docs/adr/0044`).
//!
//! Stories are made again from the lines of the journal, with the time of the capture as the present. Only the headlines are
//! stored, since some of their facts are in memory only, and count for the same version of criscope.

mod bundle;
mod pages;
pub mod requests;
mod snapshot;
#[cfg(test)]
mod tests;

pub use self::bundle::{Bundle, BundleError, FORMAT, Manifest, Origin, RequestsHead};
pub(super) use self::snapshot::Captured;
pub use self::snapshot::Snapshot;
pub use super::journal::files as journal;
