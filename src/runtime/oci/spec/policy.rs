//! What the configuration of the node says of all pods.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What pods get that say nothing of it, and what becomes of what they ask. [`Policy::default`] is containerd's, but that
/// limits of huge pages hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The seccomp profile of a container that says nothing of one.
    pub unset_seccomp: UnsetSeccomp,
    /// What becomes of limits of huge pages.
    pub huge_pages: HugePages,
    /// A device that a container asks for belongs to the user and group its security context names.
    pub own_devices: bool,
    /// Any user may bind low ports in a pod with a network of its own.
    pub unprivileged_ports: bool,
    /// Any group may ping there, unless the pod has a user namespace.
    pub unprivileged_icmp: bool,
    /// Kernel settings, in dotted form, of every pod that has the namespace they live in.
    pub sysctls: BTreeMap<String, String>,
    /// How many SELinux categories there are to tell pods apart with.
    pub selinux_categories: u16,
}

/// The seccomp profile of a container that says nothing of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum UnsetSeccomp {
    /// None; critest expects that.
    #[default]
    Unconfined,
    /// Our own.
    RuntimeDefault,
    /// That of a file of the node.
    Localhost(PathBuf),
}

/// What becomes of limits of huge pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HugePages {
    /// They hold, where the node has the controller for them.
    #[default]
    IfPossible,
    /// They hold, or the container is not made.
    Required,
    /// They are left out.
    Ignored,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            unset_seccomp: UnsetSeccomp::default(),
            huge_pages: HugePages::default(),
            own_devices: false,
            unprivileged_ports: true,
            unprivileged_icmp: true,
            sysctls: BTreeMap::new(),
            selinux_categories: 1024,
        }
    }
}
