//! A pod as the input of plugins, and its attachments.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::capabilities::Capabilities;
use super::conf::valid_name;
use super::error::Error;
use super::result::CniResult;

/// A pod.
#[derive(Debug, Clone, Default)]
pub struct Pod {
    /// Sandbox id: `CNI_CONTAINERID`.
    pub id: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Path of its network namespace; `None` if it no longer exists.
    pub netns: Option<PathBuf>,
    /// Dynamic parameters of its plugins.
    pub capabilities: Capabilities,
}

/// An attachment that [`super::Cni::gc`] keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the network.
    pub network: String,
    /// Sandbox id.
    pub container: String,
    /// Name of the interface.
    pub interface: String,
}

/// An attached network.
#[derive(Debug, Clone)]
pub struct Interface {
    /// The network, container and interface.
    pub attachment: Attachment,
    /// The result of the last plugin.
    pub result: CniResult,
}

/// A network that a pod is attached to, as needed to detach it if the cache has lost it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedNetwork {
    /// The interface of the pod.
    pub interface: String,
    /// The configuration list of the ADD. It may have credentials.
    pub config: Value,
}

impl fmt::Debug for AttachedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedNetwork")
            .field("interface", &self.interface)
            .finish_non_exhaustive()
    }
}

/// The attached networks of a pod.
#[derive(Debug, Clone)]
pub struct Attached {
    /// For [`del_recorded`](super::Cni::del_recorded).
    pub networks: Vec<AttachedNetwork>,
    /// In the order of attachment.
    pub interfaces: Vec<Interface>,
    /// The pod's address: the first one of the first interface.
    pub ip: Option<IpAddr>,
    /// The other addresses of that interface.
    pub additional_ips: Vec<IpAddr>,
}

pub(crate) fn valid(pod: &Pod) -> Result<(), Error> {
    check("container id", &pod.id, valid_name(&pod.id))?;
    // The values become CNI_ARGS, in which `;` and `=` are separators.
    for (what, value) in [
        ("pod namespace", &pod.namespace),
        ("pod name", &pod.name),
        ("pod uid", &pod.uid),
    ] {
        check(what, value, !value.contains([';', '=', '\0']))?;
    }
    Ok(())
}

fn check(what: &'static str, value: &str, is_valid: bool) -> Result<(), Error> {
    if is_valid {
        return Ok(());
    }
    Err(Error::Invalid {
        what,
        value: value.to_owned(),
    })
}

pub(crate) fn netns(pod: &Pod) -> String {
    pod.netns
        .as_ref()
        .map(|path| path.display().to_string())
        .unwrap_or_default()
}

pub(crate) fn args(pod: &Pod) -> Vec<(String, String)> {
    let pairs = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &pod.namespace),
        ("K8S_POD_NAME", &pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &pod.id),
        ("K8S_POD_UID", &pod.uid),
    ];
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
}
