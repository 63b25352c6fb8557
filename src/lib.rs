//! criscope
#![allow(missing_docs)]
pub mod config;
pub mod cri;
pub mod instrument;
pub mod telemetry;
