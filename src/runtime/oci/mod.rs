//! The OCI runtime: the specification of a container ([`spec`]), and the program that runs it ([`runtime`]).

mod error;
mod exec;
pub mod runtime;
pub mod spec;

pub use error::OciError;
pub use runtime::{Create, OciRuntime, State};
