//! The cases, by what fails.

pub(super) mod asked;
pub(super) mod cni;
pub(super) mod containers;
pub(super) mod events;
pub(super) mod healthy;
pub(super) mod images;
pub(super) mod node;
pub(super) mod oci;
pub(super) mod own;
pub(super) mod probes;
pub(super) mod runtimes;
pub(super) mod sandboxes;
mod stops;
