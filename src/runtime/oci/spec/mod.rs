//! The specification of one container: what the kubelet asked, what the image says, what the node can, what the sandbox
//! has, put together into one `config.json`.
//!
//! Nothing here touches the machine: what must be looked up goes through [`Host`], what must be done before the
//! container is made is answered as [`Action`]s. So every rule is a function with a table of cases below it.
//!
//! The rules are those of containerd's CRI plugin where the kubelet or critest depend on them.

mod annotations;
mod build;
mod capabilities;
pub mod cdi;
mod cgroup;
mod devices;
mod error;
mod facts;
mod host;
mod labels;
mod mounts;
mod namespaces;
mod policy;
mod process;
mod resources;
pub mod seccomp;
mod sysctl;
#[cfg(test)]
mod tests;
mod user;

pub use build::{Action, Built, Request, build};
pub use cgroup::{CGROUP_PREFIX, cgroup_path, check_cgroup_parent};
pub use error::SpecError;
pub use facts::{
    CgroupDriver, CgroupVersion, DeviceNode, HandlerOptions, ImageConfig, NodeFacts, SandboxFacts,
    containerd_capabilities,
};
pub use host::{Host, Machine};
pub use labels::{apparmor_profile, check_selinux_options, selinux_label};
pub use mounts::{Propagation, propagation_of};
pub use namespaces::user_mappings;
pub use policy::{HugePages, Policy, UnsetSeccomp};
pub use process::{check_arguments, exec_process};
pub use resources::{
    container_resources, restricted_oom_score_adj, reverted_resources, updated_resources,
};
pub use sysctl::sandbox_sysctls;
pub use user::{ResolvedUser, UserDatabase, resolve_user};
