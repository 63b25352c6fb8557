//! Installation on a node: finds how its kubelet is configured, puts criscope between kubelet and runtime or in the runtime's
//! place, waits until the node works with it, and takes everything back if it does not.
//!
//! [`plan`](InstallPlan::make) turns the node into data: edits of files in groups ([`ChangeGroup`]), and nothing is changed.
//! [`Installer`] carries them out by way of a journal, so that a power failure at any moment leaves a node that works. The
//! reasons are in `docs/adr/0054-install-and-roll-back.md`.

mod bypass;
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

pub use bypass::{
    BYPASS_DROP_IN, BYPASS_UNIT, InstalledBypass, NoBypass, obstacle as bypass_obstacle,
    proxy_program,
};
pub use detect::{DetectError, Distribution};
pub use edit::TextEditError;
pub(crate) use edit::{document, flag};
pub use journal::{ChangeGroup, is_installed};
pub(crate) use machine::arguments;
pub use machine::{NodeOperations, RuntimeReadiness};
pub use node::LocalNode;
pub use plan::{InstallMode, InstallOptions, InstallPlan, PlanError, PlannedContent, PlannedEdit};
pub use root::FilesystemRoot;
pub use run::{InstallError, InstallLock, Installer};
pub use services::{AGENT_SOCKET, hands_over, is_name};
pub use sockdiag::{ServerConnection, served};
pub use takedown::{RecoveryOutcome, RemovalPlan};
pub use takeover::TakeOverError;
