//! A pod as plugins see it, and what it gets from them.

use std::net::IpAddr;
use std::path::PathBuf;

use super::capabilities::Capabilities;
use super::conf::valid_name;
use super::error::Error;
use super::result::CniResult;

/// A pod, as plugins see it.
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
    /// Its network namespace; `None` when it is gone.
    pub netns: Option<PathBuf>,
    /// What it asks of plugins.
    pub capabilities: Capabilities,
}

/// An attachment that [`super::Cni::gc`] keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Network.
    pub network: String,
    /// Sandbox id.
    pub container: String,
    /// Interface.
    pub interface: String,
}

/// One attached network.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Network, container, interface.
    pub attachment: Attachment,
    /// What the last plugin said.
    pub result: CniResult,
}

/// A pod's networks.
#[derive(Debug, Clone)]
pub struct Attached {
    /// In the order they were attached.
    pub interfaces: Vec<Interface>,
    /// The pod's address: on the first interface.
    pub ip: Option<IpAddr>,
    /// The others of that interface.
    pub additional_ips: Vec<IpAddr>,
}

pub(crate) fn valid(pod: &Pod) -> Result<(), Error> {
    let check = |what, value: &str, fine: bool| match fine {
        true => Ok(()),
        false => Err(Error::Invalid {
            what,
            value: value.to_owned(),
        }),
    };
    check("container id", &pod.id, valid_name(&pod.id))?;
    // They become CNI_ARGS, where `;` and `=` separate.
    for (what, value) in [
        ("pod namespace", &pod.namespace),
        ("pod name", &pod.name),
        ("pod uid", &pod.uid),
    ] {
        check(what, value, !value.contains([';', '=', '\0']))?;
    }
    Ok(())
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
