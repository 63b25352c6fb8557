//! Which namespaces a pod has of its own, and what is set in them.

use crate::cri::v1::NamespaceMode;
use crate::runtime::error::{Error, Result};
use crate::runtime::oci::spec::{Policy, sandbox_sysctls};
use crate::runtime::store::SandboxRecord;
use crate::runtime::sys::namespace::{Kind, Request};
use crate::runtime::sys::sysctl::Sysctl;

/// What is to be made for a pod.
pub(super) fn request(record: &SandboxRecord, hostname: &str, policy: &Policy) -> Result<Request> {
    let options = record.namespaces();
    let own = |mode: i32| mode != NamespaceMode::Node as i32;
    let mut kinds = Vec::new();
    // Who has the node's network has its name too, as the kubelet expects.
    if own(options.network) {
        kinds.extend([Kind::Net, Kind::Uts]);
    }
    if own(options.ipc) {
        kinds.push(Kind::Ipc);
    }
    let sysctls = sandbox_sysctls(&record.config, policy)?
        .into_iter()
        .map(|(name, value)| Sysctl::new(&name, &value))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| Error::invalid(error.to_string()))?;
    Ok(Request {
        hostname: kinds.contains(&Kind::Uts).then(|| hostname.to_owned()),
        kinds,
        sysctls,
    })
}
