//! Chooses the backend of a call.
pub mod rules;
