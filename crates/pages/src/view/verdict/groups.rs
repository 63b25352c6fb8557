//! Groups of causes, as a person counts them: five image pulls, one CNI.

use serde::{Deserialize, Serialize};

criscope_cri::named! {
    /// A group of causes that have the same remedy, or the same person to call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[repr(u8)]
    #[serde(rename_all = "snake_case")]
    pub enum CauseGroup {
        /// An image cannot be pulled, or waits for its pull.
        ImagePull = "image_pull",
        /// The network of a sandbox cannot be made.
        Cni = "cni",
        /// The command of a container cannot be run.
        Command = "command",
        /// A container runs out of memory, or its limit is too low.
        Memory = "memory",
        /// The kernel or the runtime does not accept what the pod asks for.
        Setting = "setting",
        /// A mount of a container fails.
        Mount = "mount",
        /// A disk is full or fails.
        Disk = "disk",
        /// A limit of the node is reached.
        NodeLimit = "node_limit",
        /// The runtime, or a program that it needs, fails.
        Runtime = "runtime",
        /// A call takes longer than its caller waits.
        Timeout = "timeout",
        /// A probe fails.
        Probe = "probe",
        /// A hook of a container, or of the OCI runtime, fails.
        Hook = "hook",
        /// A container that others wait for has not ended or started.
        Container = "container",
        /// The kubelet waits for something outside the CRI, or cannot sync the pod.
        Kubelet = "kubelet",
        /// The node itself: not ready, restarted, without a kubelet.
        Node = "node",
        /// A fault is injected.
        Injected = "injected",
        /// Any other cause.
        Other = "other",
    }
}

/// Names of causes by group. A name that ends in `*` stands for all with this beginning. The first match counts.
const GROUPS: [(CauseGroup, &[&str]); 16] = [
    (
        CauseGroup::Disk,
        &[
            "no_space",
            "no_inodes",
            "disk_*",
            "read_only",
            "image_fs_full",
        ],
    ),
    (
        CauseGroup::ImagePull,
        &[
            "image_*",
            "signature_policy",
            "registry_*",
            "pull_queue",
            "slow_image_pull",
            "proxy_unreachable",
            "pause_image_failed",
        ],
    ),
    (
        CauseGroup::Cni,
        &["cni_*", "api_*", "network_failed", "slow_network"],
    ),
    (CauseGroup::Command, &["command_*", "init_died"]),
    (
        CauseGroup::Memory,
        &["memory_limit_too_low", "no_memory", "oom_kill"],
    ),
    (
        CauseGroup::Setting,
        &[
            "working_dir",
            "unknown_user",
            "unknown_sysctl",
            "unknown_handler",
            "cgroup_limit",
            "host_port_taken",
            "rlimit",
            "apparmor_*",
            "selinux_label",
            "cdi_device",
            "permission_denied",
        ],
    ),
    (
        CauseGroup::Mount,
        &["mount_failed", "mount_type", "broken_mount", "busy"],
    ),
    (
        CauseGroup::NodeLimit,
        &["kernel_limit", "key_quota", "too_many_*"],
    ),
    (
        CauseGroup::Timeout,
        &[
            "deadline_passed",
            "runtime_gave_up",
            "call_in_flight",
            "cancelled",
            "call_broken_off",
        ],
    ),
    (
        CauseGroup::Runtime,
        &[
            "runtime_*",
            "sandbox_*",
            "shim_gone",
            "oci_runtime_fails",
            "program_*",
            "systemd_fails",
            "cgroup_driver",
            "cgroup_missing",
            "nri_plugin",
            "local_service_away",
            "name_reserved",
            "container_create_failed",
            "container_start_failed",
            "container_stop_failed",
            "container_remove_failed",
            "call_failed",
            "slow_sandbox*",
            "slow_container_*",
            "unusual",
        ],
    ),
    (CauseGroup::Probe, &["probe_*", "late_probe", "kill_loop"]),
    (
        CauseGroup::Hook,
        &[
            "hook*",
            "hooks_dir",
            "oci_hook_failed",
            "slow_post_start_hook",
            "slow_hook",
        ],
    ),
    (
        CauseGroup::Container,
        &[
            "awaiting_container",
            "init_container_retried",
            "slow_init_container",
        ],
    ),
    (
        CauseGroup::Kubelet,
        &[
            "kubelet_*",
            "waits_before_first_call",
            "no_further_call",
            "container_not_created",
            "no_container_started",
            "before_first_call",
            "never_started",
            "slow_outside_cri",
        ],
    ),
    (
        CauseGroup::Node,
        &["backend_*", "no_kubelet", "node_restarted", "criscope_*"],
    ),
    (CauseGroup::Injected, &["injected_fault"]),
];

/// Causes that say no more than the state of the pod does.
const PLAIN_CAUSES: [&str; 9] = [
    "crash_loop",
    "container_ended",
    "container_stopped",
    "container_killed",
    "begun",
    "quick",
    "recovered",
    "no_episode",
    "start_not_seen",
];

impl CauseGroup {
    /// The group of the cause with this name; `None` if the cause says no more than the state of its pod.
    pub fn from_cause(name: &str) -> Option<Self> {
        if name.is_empty() || PLAIN_CAUSES.contains(&name) {
            return None;
        }
        let mut groups = GROUPS.iter();
        let found = groups.find(|(_, names)| {
            names.iter().any(|known| match known.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => *known == name,
            })
        });
        Some(found.map_or(Self::Other, |(group, _)| *group))
    }

    /// The noun for this number of pods: `image pulls`, `CNI`.
    pub const fn noun(self, count: usize) -> &'static str {
        let is_one = count == 1;
        match self {
            Self::ImagePull if is_one => "image pull",
            Self::ImagePull => "image pulls",
            Self::Cni => "CNI",
            Self::Command if is_one => "command",
            Self::Command => "commands",
            Self::Memory => "out of memory",
            Self::Setting if is_one => "setting of the pod",
            Self::Setting => "settings of the pods",
            Self::Mount if is_one => "mount",
            Self::Mount => "mounts",
            Self::Disk => "disk",
            Self::NodeLimit => "limit of the node",
            Self::Runtime => "runtime",
            Self::Timeout if is_one => "timeout",
            Self::Timeout => "timeouts",
            Self::Probe if is_one => "probe",
            Self::Probe => "probes",
            Self::Hook if is_one => "hook",
            Self::Hook => "hooks",
            Self::Container => "waiting for a container",
            Self::Kubelet => "waiting for the kubelet",
            Self::Node => "node",
            Self::Injected if is_one => "injected fault",
            Self::Injected => "injected faults",
            Self::Other if is_one => "other cause",
            Self::Other => "other causes",
        }
    }

    /// Returns whether a filter's word selects a cause: the name of its group, or its own.
    pub fn selects(word: &str, cause: Option<Self>, name: &str) -> bool {
        word == name || cause.is_some_and(|group| group.name() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for group in CauseGroup::ALL {
            let json = serde_json::to_string(&group).expect("json");
            assert_eq!(json, format!("\"{}\"", group.name()));
        }
    }

    #[test]
    fn causes_have_the_group_of_their_remedy() {
        let cases = [
            ("image_not_found", Some(CauseGroup::ImagePull)),
            ("cni_no_addresses", Some(CauseGroup::Cni)),
            ("command_not_found", Some(CauseGroup::Command)),
            ("probe_fails", Some(CauseGroup::Probe)),
            ("crash_loop", None),
            ("", None),
            ("a cause of a newer version", Some(CauseGroup::Other)),
        ];
        for (name, group) in cases {
            assert_eq!(CauseGroup::from_cause(name), group, "{name}");
        }
    }
}
