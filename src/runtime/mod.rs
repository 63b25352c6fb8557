//! The built-in backend: pods and containers over an OCI runtime and CNI plugins, images from registries.
//!
//! The parts below know nothing of each other's insides and nothing of gRPC; the verbs put them together.

pub mod cni;
pub mod image;
pub mod oci;
pub mod process;
pub mod rootfs;
pub mod stats;
pub mod store;
pub mod sys;
