//! The pages of the daemon as data, and the commands that show them on a terminal. Nothing here needs Linux, so that `kubectl
//! criscope` shows the same on other systems.
//!
//! [`view`] and [`tables`] are the JSON of pages. [`commands`] are `explain`, `pods` and `calls`: each reads from a [`source`], which is
//! the daemon of a node, a capture or a cluster, and draws with [`terminal`].

pub mod commands;
#[cfg(any(test, feature = "test-util"))]
pub mod examples;
pub mod source;
pub mod tables;
pub mod terminal;
pub mod view;
