//! The edits of a CDI file to containers (CDI specification, "containerEdits"), up to version 1.1.0.
//!
//! A field that is not known is an error, as for the reference implementation: its effect would be missing in the container.

use std::collections::HashSet;
use std::path::PathBuf;

use oci_spec::runtime::LinuxDeviceType;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Longest name of a network interface in bytes (`IFNAMSIZ` without the zero byte).
const MAX_INTERFACE_NAME: usize = 15;
/// Longest name of a class of service in bytes (`PATH_MAX` without the zero byte).
const MAX_CLASS_NAME: usize = 4095;

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Edits {
    #[serde(deserialize_with = "env")]
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<Node>,
    #[serde(deserialize_with = "net_devices")]
    pub(super) net_devices: Vec<NetDevice>,
    pub(super) mounts: Vec<CdiMount>,
    pub(super) hooks: Vec<CdiHook>,
    pub(super) intel_rdt: Option<IntelRdt>,
    pub(super) additional_gids: Vec<u32>,
}

/// A device node; unset values come from `host_path`.
#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Node {
    #[serde(deserialize_with = "path")]
    pub(super) path: PathBuf,
    /// `path` if it is not set.
    #[serde(default, deserialize_with = "optional_path")]
    pub(super) host_path: Option<PathBuf>,
    #[serde(rename = "type", default, deserialize_with = "device_type")]
    pub(super) typ: Option<LinuxDeviceType>,
    /// 0 if it is not set.
    #[serde(default)]
    pub(super) major: u32,
    #[serde(default)]
    pub(super) minor: u32,
    /// The access that the device cgroup allows; empty if no rule is wanted.
    #[serde(default = "all_access", deserialize_with = "access")]
    pub(super) permissions: String,
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
    #[serde(deserialize_with = "path")]
    pub(super) host_path: PathBuf,
    #[serde(deserialize_with = "path")]
    pub(super) container_path: PathBuf,
    #[serde(rename = "type")]
    pub(super) typ: Option<String>,
    #[serde(default)]
    pub(super) options: Vec<String>,
}

/// When the OCI runtime calls a hook.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookName {
    Prestart,
    CreateRuntime,
    CreateContainer,
    StartContainer,
    Poststart,
    Poststop,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiHook {
    pub(super) hook_name: HookName,
    #[serde(deserialize_with = "path")]
    pub(super) path: PathBuf,
    pub(super) args: Option<Vec<String>>,
    #[serde(default, deserialize_with = "variables")]
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

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    if path.as_os_str().is_empty() {
        return Err(D::Error::custom("a path is empty"));
    }
    Ok(path)
}

fn optional_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = Option::<PathBuf>::deserialize(from)?;
    Ok(path.filter(|path| !path.as_os_str().is_empty()))
}

/// `b`, `c`, `u` (the same as `c`) or `p`.
fn device_type<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LinuxDeviceType>, D::Error> {
    match Option::<String>::deserialize(from)?.as_deref() {
        None | Some("") => Ok(None),
        Some("b") => Ok(Some(LinuxDeviceType::B)),
        Some("c") => Ok(Some(LinuxDeviceType::C)),
        Some("u") => Ok(Some(LinuxDeviceType::U)),
        Some("p") => Ok(Some(LinuxDeviceType::P)),
        Some(other) => {
            let text = format!("deviceNodes: {other:?} is not a type of devices");
            Err(D::Error::custom(text))
        }
    }
}

fn all_access() -> String {
    "rwm".to_owned()
}

/// Letters of `rwm`, or `none`; nothing stands for all.
fn access<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Option::<String>::deserialize(from)?.as_deref() {
        None | Some("") => Ok(all_access()),
        Some("none") => Ok(String::new()),
        Some(letters) if letters.chars().all(|letter| "rwm".contains(letter)) => {
            Ok(letters.to_owned())
        }
        Some(other) => {
            let text = format!("deviceNodes: permissions {other:?} are not a subset of rwm");
            Err(D::Error::custom(text))
        }
    }
}

fn env<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    variables(from).map(Option::unwrap_or_default)
}

/// Variables `name=value`. The error does not quote them.
fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let pairs = Option::<Vec<String>>::deserialize(from)?;
    let mut names = pairs
        .iter()
        .flatten()
        .map(|pair| pair.split_once('=').map(|(name, _)| name));
    if names.any(|name| name.is_none_or(str::is_empty)) {
        return Err(D::Error::custom("env: not of the form name=value"));
    }
    Ok(pairs)
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

/// The rules of the kernel's `dev_valid_name`.
pub(crate) fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_INTERFACE_NAME
        && name
            .bytes()
            .all(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b':' | 0))
}

fn class_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    if name.as_deref().is_some_and(|name| !is_class_name(name)) {
        return Err(D::Error::custom("intelRdt: closID is not a name"));
    }
    Ok(name)
}

/// Returns whether a text is the name of a directory of resctrl; `/` is its root.
pub(crate) fn is_class_name(name: &str) -> bool {
    let is_part = name.len() <= MAX_CLASS_NAME && !name.contains(['/', '\n', '\0']);
    name == "/" || (is_part && !matches!(name, "." | ".."))
}
