//! The edits of a CDI file to containers (CDI specification, "containerEdits"), up to version 1.1.0.
//!
//! A field that is not known is an error, as for the reference implementation: what it asks for would be missing in the container.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Longest name of a network interface in bytes (`IFNAMSIZ` without the zero byte).
const MAX_INTERFACE_NAME: usize = 15;
/// Longest name of a class of service in bytes (`PATH_MAX` without the zero byte).
const MAX_CLASS_NAME: usize = 4095;

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Edits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<Node>,
    #[serde(deserialize_with = "net_devices")]
    pub(super) net_devices: Vec<NetDevice>,
    pub(super) mounts: Vec<CdiMount>,
    pub(super) hooks: Vec<CdiHook>,
    pub(super) intel_rdt: Option<IntelRdt>,
    pub(super) additional_gids: Vec<u32>,
}

/// `type`, `major` and `minor` are those of the node on the host.
#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) path: PathBuf,
    pub(super) host_path: Option<PathBuf>,
    pub(super) permissions: Option<String>,
    pub(super) file_mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

/// A network interface of the node that is moved into the container.
#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NetDevice {
    pub(super) host_interface_name: String,
    pub(super) name: String,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiMount {
    pub(super) host_path: PathBuf,
    pub(super) container_path: PathBuf,
    #[serde(rename = "type")]
    pub(super) typ: Option<String>,
    #[serde(default)]
    pub(super) options: Vec<String>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiHook {
    pub(super) hook_name: String,
    pub(super) path: PathBuf,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<String>>,
    pub(super) timeout: Option<i64>,
}

/// `linux.intelRdt` of the OCI runtime specification, whose form it has. CDI 1.1.0 removed `enableCMT` and `enableMBM`, which have had no
/// effect since OCI 1.3.
#[derive(Deserialize, Serialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IntelRdt {
    #[serde(
        rename = "closID",
        default,
        deserialize_with = "class_name",
        skip_serializing_if = "Option::is_none"
    )]
    clos_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l3_cache_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mem_bw_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schemata: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_monitoring: Option<bool>,
}

/// Network devices: no two may have the same name, on either side.
fn net_devices<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NetDevice>, D::Error> {
    let devices = Vec::<NetDevice>::deserialize(from)?;
    let (mut hosts, mut names) = (HashSet::new(), HashSet::new());
    for device in &devices {
        for (seen, name) in [
            (&mut hosts, &device.host_interface_name),
            (&mut names, &device.name),
        ] {
            if !is_interface_name(name) {
                let text = format!("netDevices: {name:?} is not the name of an interface");
                return Err(D::Error::custom(text));
            }
            if !seen.insert(name) {
                return Err(D::Error::custom(format!("netDevices: {name:?} twice")));
            }
        }
    }
    Ok(devices)
}

/// As the kernel's `dev_valid_name`.
fn is_interface_name(name: &str) -> bool {
    let of_name = |byte: u8| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b':' | 0);
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_INTERFACE_NAME
        && name.bytes().all(of_name)
}

/// The name of a directory of resctrl; `/` is its root.
fn class_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    match name.as_deref() {
        None | Some("/") => Ok(name),
        Some("." | "..") => Err(D::Error::custom("intelRdt: closID is not a name")),
        Some(id) if id.len() > MAX_CLASS_NAME || id.contains(['/', '\n', '\0']) => {
            Err(D::Error::custom("intelRdt: closID is not a name"))
        }
        Some(_) => Ok(name),
    }
}
