//! Captures: the knowledge of a node at one moment, in a file that another machine reads (`docs/adr/0044`).
//!
//! The reader rebuilds the stories from the lines of the journal, with the time of the capture as the present. Headlines are
//! stored, since some of their facts are in memory only. Stored headlines are used by the same version of criscope.

mod bundle;
mod pages;
pub mod requests;
mod snapshot;
#[cfg(test)]
mod tests;

pub use self::bundle::{
    BundleError, CAPTURE_FORMAT, CaptureBundle, CaptureManifest, CaptureOrigin, RequestsHead,
};
pub use self::snapshot::ProcessSnapshot;
pub(super) use self::snapshot::{CapturedState, PodHeadline};
pub use super::journal::files as journal;
