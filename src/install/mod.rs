//! Installation on a node: finds how its kubelet is configured, puts criscope between kubelet and runtime or in the runtime's
//! place, waits until the node works with it, and takes everything back if it does not.
//!
//! [`plan`](Plan::make) turns the node into data: edits of files in groups ([`Group`]), and nothing is changed.
//! [`Installer`] carries them out by way of a journal, so that a power failure at any moment leaves a node that works. The
//! reasons are in `docs/adr/0054-install-and-roll-back.md`.

mod config;
mod detect;
mod edit;
mod files;
mod health;
mod journal;
mod lines;
mod machine;
mod node;
mod plan;
mod root;
mod run;
mod services;
mod show;
mod sockdiag;
mod takedown;
mod takeover;
mod unit;
mod workspace;

#[cfg(test)]
mod tests;

pub use detect::{DetectError, Distribution};
pub use edit::EditError;
pub use journal::Group;
pub use machine::{Machine, Readiness};
pub use node::Node;
pub use plan::{Content, Edit, Mode, Options, Plan, PlanError};
pub use root::Root;
pub use run::{Installer, Lock, RunError};
pub use services::{AGENT_SOCKET, is_name};
pub use sockdiag::{Served, served};
pub use takedown::{Recovered, Removal};
pub use takeover::TakeOverError;
