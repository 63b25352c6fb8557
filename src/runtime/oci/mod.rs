//! The OCI runtime: the specification of a container ([`spec`]), the program that runs it ([`runtime`]), and the cache of its
//! compiled seccomp filters ([`Filters`]).

mod checkpoint;
mod error;
mod exec;
mod filters;
mod reason;
pub mod runtime;
pub mod spec;

pub use checkpoint::Checkpoint;
pub use error::OciError;
pub use filters::Filters;
pub use reason::reason;
pub use runtime::{Create, OciRuntime, State};
