//! The parts of the built-in runtime, with the real tools they drive.

mod cni;
mod namespaces;
