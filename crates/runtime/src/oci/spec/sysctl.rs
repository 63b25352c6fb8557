//! The sysctls of a sandbox.

use std::collections::BTreeMap;

use super::error::SpecError;
use crate::sections::PodDefaults;
use criscope_cri::v1::{NamespaceMode, PodSandboxConfig};

/// The sysctls of the IPC namespace, besides `fs.mqueue.*`.
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// The sysctls to write in the namespaces of a sandbox, in dotted form: those of the pod, then those of the node's policy whose
/// namespace the pod does not share with the host. A sysctl of the pod that would change the host is an error.
pub fn sandbox_sysctls(
    pod: &PodSandboxConfig,
    policy: &PodDefaults,
) -> Result<BTreeMap<String, String>, SpecError> {
    let linux = pod.linux.as_ref();
    let own = Own::from_pod(pod);
    let mut all = BTreeMap::new();
    for (name, value) in linux.into_iter().flat_map(|linux| &linux.sysctls) {
        let dotted = dotted(name);
        if !own.has(&dotted) {
            return Err(SpecError::Invalid(format!(
                "sysctl {name} does not belong to a namespace of this pod"
            )));
        }
        all.insert(dotted, value.clone());
    }
    let configured = policy.sysctls.iter();
    let configured = configured.map(|(name, value)| (dotted(name), value.as_str()));
    let mut rest: Vec<_> = configured.collect();
    if policy.enable_unprivileged_ports {
        rest.push(("net.ipv4.ip_unprivileged_port_start".to_owned(), "0"));
    }
    if policy.enable_unprivileged_icmp && !own.users {
        rest.push(("net.ipv4.ping_group_range".to_owned(), "0 2147483647"));
    }
    for (name, value) in rest {
        if own.has(&name) {
            all.entry(name).or_insert_with(|| value.to_owned());
        }
    }
    Ok(all)
}

/// The namespaces that a pod does not share with the host.
pub(super) struct Own {
    pub(super) network: bool,
    pub(super) uts: bool,
    pub(super) ipc: bool,
    pub(super) users: bool,
}

impl Own {
    fn from_pod(pod: &PodSandboxConfig) -> Self {
        let options = pod.namespace_options();
        let node = NamespaceMode::Node as i32;
        let userns = options.and_then(|options| options.userns_options.as_ref());
        Self {
            network: options.is_none_or(|options| options.network != node),
            uts: !pod.hostname.is_empty() || options.is_none_or(|options| options.network != node),
            ipc: options.is_none_or(|options| options.ipc != node),
            users: userns.is_some_and(|userns| userns.mode == NamespaceMode::Pod as i32),
        }
    }

    /// Returns whether a sysctl, in dotted form, belongs to one of them.
    pub(super) fn has(&self, name: &str) -> bool {
        let network = name.starts_with("net.");
        let ipc = name.starts_with("fs.mqueue.") || IPC.contains(&name);
        let uts = ["kernel.domainname", "kernel.hostname"].contains(&name);
        let own = (network && self.network) || (uts && self.uts) || (ipc && self.ipc);
        // In dotted form a slash stands for a dot: `net/../kernel` is `net.//.kernel`.
        own && !name.split('.').any(|part| matches!(part, "" | "/" | "//"))
    }
}

/// Converts to dotted form. With slashes as separators, which the kubelet allows, an interface name may contain a dot.
pub(super) fn dotted(name: &str) -> String {
    let slashes = name
        .find('/')
        .is_some_and(|slash| name.find('.').is_none_or(|dot| slash < dot));
    if slashes {
        name.replace('.', "\0").replace('/', ".").replace('\0', "/")
    } else {
        name.to_owned()
    }
}
