//! The instrument: the one layer that sees every call begin and end.

pub mod signals;
