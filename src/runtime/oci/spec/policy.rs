//! The node's configured policy for all pods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oci_spec::runtime::PosixRlimit;

/// Defaults for pods, and restrictions on their requests. [`Policy::default`] is that of containerd, except that huge page
/// limits are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The seccomp profile of containers that do not request one.
    pub unset_seccomp: UnsetSeccomp,
    /// How huge page limits are handled.
    pub huge_pages: HugePages,
    /// True if devices of a container are owned by the user and group of its security context.
    pub own_devices: bool,
    /// True if any user may bind low ports in pods without host network.
    pub unprivileged_ports: bool,
    /// True if any group may ping in such pods, unless the pod has a user namespace.
    pub unprivileged_icmp: bool,
    /// Sysctls, in dotted form, for every pod with the corresponding namespace.
    pub sysctls: BTreeMap<String, String>,
    /// Resource limits of the processes of every container.
    pub ulimits: Vec<PosixRlimit>,
    /// The number of SELinux categories available to separate pods.
    pub selinux_categories: u16,
}

/// The seccomp profile of containers that do not request one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum UnsetSeccomp {
    /// None, as critest expects.
    #[default]
    Unconfined,
    /// The built-in profile.
    RuntimeDefault,
    /// A profile file of the node.
    Localhost(PathBuf),
}

/// How huge page limits are handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Applied if the node has the hugetlb controller.
    #[default]
    IfPossible,
    /// Applied, or the container is refused.
    Required,
    /// Ignored.
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
            ulimits: Vec::new(),
            selinux_categories: 1024,
        }
    }
}
