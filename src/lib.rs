//! criscope
#![allow(missing_docs)]
pub mod app;
pub mod cli;
pub mod config;
pub mod cri;
