//! Calls and scenarios for the unit tests of this crate.

pub(crate) mod scenario;
pub(crate) mod script;
