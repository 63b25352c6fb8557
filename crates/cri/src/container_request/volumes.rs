//! The mounts of a container that may hide or hold programs.

use prost::Message;
use serde::{Deserialize, Serialize};

use crate::annotations::fields;
use crate::serde_by_name;

/// Most mounts that are kept of a container. Those over system directories come first.
pub(super) const MAX_MOUNTS: usize = 8;
/// Longest destination of a mount that is kept, in bytes.
const MAX_PATH_LEN: usize = 128;

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    /// The destination in the container.
    pub path: Box<str>,
    /// The kind of its volume.
    pub kind: VolumeKind,
    /// The container may not write to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The kernel runs no program in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_exec: bool,
    /// The first word of `command` is the destination, or lies below it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds_command: bool,
}

crate::named! {
    /// The kind of a volume, from the kubelet's directory for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum VolumeKind {
        /// An empty directory.
        EmptyDir = "empty_dir",
        /// The files of a ConfigMap.
        ConfigMap = "config_map",
        /// The files of a Secret.
        Secret = "secret",
        /// Files of several sources.
        Projected = "projected",
        /// Fields of the pod.
        DownwardApi = "downward_api",
        /// An image.
        Image = "image",
        /// A path of the node.
        HostPath = "host_path",
        /// A volume of a driver, or part of a volume.
        Other = "other",
    }
}

serde_by_name!(VolumeKind);

#[derive(Clone, PartialEq, Message)]
struct MountNumbers {
    #[prost(bool, tag = "3")]
    readonly: bool,
}

/// The mounts that may hide or hold programs, those over system directories first.
pub(super) fn mounts(config: &[u8]) -> Vec<MountedVolume> {
    let command = fields(config, 3).next().unwrap_or_default();
    let mounts = fields(config, 7).filter_map(|mount| {
        let path = std::str::from_utf8(fields(mount, 1).last()?).ok()?;
        let host = std::str::from_utf8(fields(mount, 2).last().unwrap_or_default()).ok()?;
        let is_image = fields(mount, 9).next().is_some();
        let numbers = MountNumbers::decode(mount).unwrap_or_default();
        let is_of_kubelet = path == "/dev/termination-log"
            || path.starts_with("/var/run/secrets/kubernetes.io/")
            || host.contains("/pods/") && host.ends_with("/etc-hosts");
        let is_kept = !is_of_kubelet && !path.is_empty() && path.len() <= MAX_PATH_LEN;
        is_kept.then(|| MountedVolume {
            path: path.into(),
            kind: VolumeKind::new(host, is_image),
            read_only: numbers.readonly || has_option(mount, b"ro"),
            no_exec: has_option(mount, b"noexec"),
            holds_command: command == path.as_bytes() || is_below(command, path),
        })
    });
    let mut mounts: Vec<_> = mounts.collect();
    mounts.sort_by_key(|mount| !(mount.holds_command || mount.is_over_system_directory()));
    mounts.truncate(MAX_MOUNTS);
    mounts.shrink_to_fit();
    mounts
}

/// Returns whether a mount has this one of `mount_options`.
fn has_option(mount: &[u8], option: &[u8]) -> bool {
    fields(mount, 11).any(|value| value == option)
}

impl VolumeKind {
    /// From the source of a mount. The kubelet has a directory for each volume of a pod, below the name of its plugin.
    fn new(host_path: &str, is_image: bool) -> Self {
        let Some((_, of_pod)) = host_path.split_once("/pods/") else {
            return if is_image {
                Self::Image
            } else {
                Self::HostPath
            };
        };
        let plugin = of_pod.split_once("/volumes/kubernetes.io~");
        match plugin.and_then(|(_, rest)| rest.split('/').next()) {
            Some("empty-dir") => Self::EmptyDir,
            Some("configmap") => Self::ConfigMap,
            Some("secret") => Self::Secret,
            Some("projected") => Self::Projected,
            Some("downward-api") => Self::DownwardApi,
            _ => Self::Other,
        }
    }

    /// Returns whether the pod's author decides which files are in the volume.
    pub fn has_files_of_author(self) -> bool {
        matches!(
            self,
            Self::ConfigMap | Self::Secret | Self::Projected | Self::DownwardApi | Self::Image
        )
    }
}

/// Directories with the programs and libraries of an image.
const SYSTEM_DIRECTORIES: [&str; 14] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/lib",
    "/etc",
];

impl MountedVolume {
    /// Returns whether it lies over a directory with programs or libraries of the image.
    pub fn is_over_system_directory(&self) -> bool {
        let path = self.path.trim_end_matches('/');
        SYSTEM_DIRECTORIES.contains(&path)
    }

    /// Returns whether it is mounted at the path of this program.
    pub(super) fn is_program(&self, program: &str) -> bool {
        let directory = self.path.rsplit_once('/').map(|(directory, _)| directory);
        let is_in_path = directory.is_some_and(|directory| {
            let name = self.path.get(directory.len() + 1..);
            SYSTEM_DIRECTORIES.contains(&directory) && name == Some(program)
        });
        *self.path == *program || is_in_path
    }

    /// Returns whether it lies over a directory with this path.
    pub fn is_over(&self, path: &str) -> bool {
        is_below(path.as_bytes(), &self.path)
    }
}

/// Directories that are links into `/usr` in many images.
const LINKED_DIRECTORIES: [&str; 4] = ["/bin", "/sbin", "/lib", "/lib64"];

/// Returns whether a path lies below a directory, directly or by the links into `/usr`.
pub(super) fn is_below(path: &[u8], directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    if directory.is_empty() {
        return false;
    }
    let linked = LINKED_DIRECTORIES
        .iter()
        .find(|linked| has_prefix(path, linked) || has_prefix(path, &format!("/usr{linked}")));
    has_prefix(path, directory)
        || linked.is_some_and(|linked| {
            directory == *linked
                || directory
                    .strip_prefix("/usr")
                    .is_some_and(|rest| rest == *linked)
                || directory == "/usr"
        })
}

fn has_prefix(path: &[u8], directory: &str) -> bool {
    let rest = path.strip_prefix(directory.as_bytes());
    rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with(b"/"))
}
