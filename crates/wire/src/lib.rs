//! The wire formats between container runtimes and their shims and plugins.
//!
#![doc = include_str!("../README.md")]

pub mod ttrpc;

mod messages {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub)]

    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use self::messages::cgroups;
pub use self::messages::containerd::{services, task};
pub use prost_types::{Any, Timestamp};
