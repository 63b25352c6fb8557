//! criscope
#![allow(missing_docs)]
pub mod app;
pub mod cli;
pub mod config;
pub mod cri;
pub mod identity;
pub mod inspect;
pub mod instrument;
pub mod listener;
pub mod rescue;
pub mod router;
pub mod stack;
pub mod telemetry;
pub mod upstream;
pub mod wire;
