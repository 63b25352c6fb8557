//! The OCI runtime: the specification of a container ([`spec`]), the program that runs it ([`runtime`], or a shim of containerd,
//! [`containerd_shim`]), and the cache of its compiled seccomp filters ([`Filters`]).

mod checkpoint;
pub mod containerd_shim;
mod error;
mod exec;
mod filters;
mod reason;
pub mod runtime;
pub mod spec;
pub mod version;

pub use checkpoint::Checkpoint;
pub use containerd_shim::ShimOptions;
pub use error::OciError;
pub use filters::Filters;
pub use reason::reason;
pub use runtime::{OciRuntime, State};
