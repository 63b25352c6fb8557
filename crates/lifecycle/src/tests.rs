//! Calls and scenarios for the unit tests of this crate.

#[cfg(test)]
pub(crate) mod scenario;
pub(crate) mod script;
