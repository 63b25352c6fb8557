//! The OCI runtime: the specification of a container ([`spec`]), the program that runs it ([`runtime`]), and what that has
//! compiled already ([`Filters`]).

mod error;
mod exec;
mod filters;
mod reason;
pub mod runtime;
pub mod spec;

pub use error::OciError;
pub use filters::Filters;
pub use reason::reason;
pub use runtime::{Create, OciRuntime, State};
