//! System calls that no library wraps safely. All `unsafe` of the runtime is here.

pub mod idmap;
pub mod link;
pub mod namespace;
pub mod sysctl;
