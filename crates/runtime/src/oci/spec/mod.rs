//! The OCI specification of a container (`config.json`), built from the kubelet's request, the image configuration, and the
//! facts of the node and the sandbox.
//!
//! Nothing here accesses the machine directly: lookups go through [`Host`], and actions that the caller must perform before the
//! container is created are returned as [`Action`]s. So every rule is a function that table tests cover.
//!
//! The rules are those of containerd's CRI plugin where the kubelet or critest depend on them.

mod account;
mod annotations;
mod build;
mod capabilities;
pub mod cdi;
mod cgroup;
mod devices;
mod error;
mod facts;
mod finished;
pub mod hooks;
mod host;
mod kernel_paths;
mod labels;
mod mount_options;
mod mounts;
mod namespaces;
mod process;
mod resources;
pub mod seccomp;
mod support;
mod sysctl;
#[cfg(test)]
mod tests;
mod user;

/// Fuzz target: parses a text as a seccomp profile.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_seccomp(text: &str) {
    let target = seccomp::Target {
        arch: "x86_64",
        kernel: (6, 1),
        capabilities: &std::collections::HashSet::new(),
    };
    let _ = seccomp::evaluate("fuzz", text, &target);
}

/// Fuzz target: parses any bytes as the user databases of an image.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_users(bytes: &[u8]) {
    let Ok(tables) = UserDatabase::read(bytes, bytes) else {
        return;
    };
    let context = criscope_cri::v1::LinuxContainerSecurityContext::default();
    for user in ["root", "0:0", "nobody:users", "7:root", "4294967296"] {
        let image = ImageConfig {
            user: user.to_owned(),
            ..ImageConfig::default()
        };
        if let Ok(found) = resolve_user(&context, &image, &tables) {
            assert!(found.groups.len() <= 1 + bytes.len());
        }
    }
}

pub use account::{AccountKind, AccountRef, ImageUser, account_id, split_image_user};
pub use annotations::sandbox_annotations;
pub use build::{Action, Built, Request, build};
pub use cgroup::{CGROUP_PREFIX, cgroup_path, check_cgroup_parent};
pub use error::SpecError;
pub use facts::{CgroupDriver, CgroupVersion, DeviceNode, ImageConfig, NodeFacts, SandboxFacts};
pub use finished::{FinishRequest, PluginChanges};
pub use host::{Host, Machine};
pub use labels::{apparmor_profile, check_selinux_options, selinux_label};
pub use mounts::{Propagation, propagation_of};
pub use namespaces::user_mappings;
pub use process::{check_arguments, exec_process};
pub use resources::{
    MoreLimits, container_resources, restricted_oom_score_adj, reverted_resources,
    updated_resources,
};
pub use support::RuntimeSupport;
pub use sysctl::sandbox_sysctls;
pub use user::{ResolvedUser, UserDatabase, protect_additional_groups, resolve_user};
