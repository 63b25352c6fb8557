//! criscope
#![allow(missing_docs)]
pub mod config;
pub mod cri;
pub mod wire;
