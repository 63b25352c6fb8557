//! The cases, by what fails.

pub(super) mod asked;
pub(super) mod callers;
pub(super) mod cni;
pub(super) mod containers;
pub(super) mod downtimes;
pub(super) mod ends;
pub(super) mod events;
pub(super) mod healthy;
pub(super) mod images;
pub(super) mod node;
pub(super) mod oci;
pub(super) mod own;
pub(super) mod probes;
pub(super) mod requests;
pub(super) mod runtimes;
pub(super) mod sandboxes;
pub(super) mod several;
pub(super) mod starts;
mod stops;
