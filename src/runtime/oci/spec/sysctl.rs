//! The kernel settings of a sandbox.

use std::collections::BTreeMap;

use super::error::SpecError;
use crate::cri::v1::{NamespaceMode, PodSandboxConfig};

/// IPC settings that belong to a namespace, by name; `fs.mqueue.` is all of them.
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

/// The settings to write inside the namespaces of a sandbox, in dotted form: what the pod asks, and for a pod network the two defaults
/// that let any user bind low ports and ping. An error names a setting that would change the host.
pub fn sandbox_sysctls(pod: &PodSandboxConfig) -> Result<BTreeMap<String, String>, SpecError> {
    let linux = pod.linux.as_ref();
    let context = linux.and_then(|linux| linux.security_context.as_ref());
    let options = context.and_then(|context| context.namespace_options.as_ref());
    let host_network = options.is_some_and(|o| o.network == NamespaceMode::Node as i32);
    let host_ipc = options.is_some_and(|o| o.ipc == NamespaceMode::Node as i32);
    let userns = options.and_then(|options| options.userns_options.as_ref());
    let in_userns = userns.is_some_and(|userns| userns.mode == NamespaceMode::Pod as i32);
    let mut all = BTreeMap::new();
    for (name, value) in linux.into_iter().flat_map(|linux| &linux.sysctls) {
        // The kubelet allows slashes for dots; an interface name may hold a dot where slashes part.
        let dotted = if name
            .find('/')
            .is_some_and(|slash| name.find('.').is_none_or(|dot| slash < dot))
        {
            name.replace('.', "\0").replace('/', ".").replace('\0', "/")
        } else {
            name.clone()
        };
        let network = dotted.starts_with("net.");
        let ipc = dotted.starts_with("fs.mqueue.") || IPC.contains(&dotted.as_str());
        let uts = ["kernel.domainname", "kernel.hostname"].contains(&dotted.as_str());
        let own = (network && !host_network) || (ipc && !host_ipc) || (uts && !host_network);
        if !own || dotted.contains("..") {
            return Err(SpecError::Invalid(format!(
                "sysctl {name} does not belong to a namespace of this pod"
            )));
        }
        all.insert(dotted, value.clone());
    }
    if !host_network {
        let mut default = |name: &str, value: &str| {
            all.entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        };
        default("net.ipv4.ip_unprivileged_port_start", "0");
        if !in_userns {
            default("net.ipv4.ping_group_range", "0 2147483647");
        }
    }
    Ok(all)
}
