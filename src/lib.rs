//! criscope
#![allow(missing_docs)]
pub mod cli;
pub mod client;
pub mod config;
pub mod cri;
pub mod smoke;
