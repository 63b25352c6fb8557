//! Directories for logs and volumes, and the parent cgroup, in place of the recorded node's. The recorded ones
//! belong to pods that may still run.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::wire::{self, InvalidProtobuf};
use crate::cri::Method;

/// The directories and the cgroup that stand in for the recorded node's.
#[derive(Debug)]
pub(super) struct StandInObjects {
    root: PathBuf,
    /// True if volumes are mounted as recorded.
    keeps_mounts: bool,
    cgroup_parent: Option<String>,
    /// By recorded path.
    made: Mutex<HashMap<String, PathBuf>>,
}

/// Why a request cannot be translated.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableRequest {
    #[error(transparent)]
    Damaged(#[from] InvalidProtobuf),
    #[error("stand-in for a directory of the node: {0}")]
    Io(#[from] io::Error),
}

impl StandInObjects {
    /// Below a new directory, for its owner only.
    pub(super) fn new(cgroup_parent: Option<String>, keeps_mounts: bool) -> io::Result<Self> {
        let name = format!("criscope-replay-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&root)?;
        Ok(Self {
            root,
            keeps_mounts,
            cgroup_parent,
            made: Mutex::default(),
        })
    }

    /// Puts them into a request.
    pub(super) fn put(&self, method: Method, message: &[u8]) -> Result<Vec<u8>, UnusableRequest> {
        let Some(config) = sandbox_config(method) else {
            return Ok(message.to_vec());
        };
        let mut failed = None;
        let mut logs = None;
        let mut message = wire::edit(message, &[config, 3], &mut |dir| {
            let dir = self.stand_in(&String::from_utf8_lossy(dir), false);
            let text = dir.as_ref().map(|dir| bytes_of(dir)).ok();
            logs = Some(dir);
            text
        })?;
        message = wire::edit(&message, &[config, 8, 1], &mut |parent| {
            self.parent(parent).map(String::into_bytes)
        })?;
        if method == Method::CreateContainer {
            let logs = logs.transpose()?;
            if let (Some(logs), Some(log)) = (logs, wire::texts(&message, &[2, 11])?.pop()) {
                fs::create_dir_all(logs.join(within(&log)).parent().unwrap_or(&logs))?;
            }
            if !self.keeps_mounts {
                message = wire::edit(&message, &[2, 7], &mut |mount| match self.mount(mount) {
                    Ok(mount) => Some(mount),
                    Err(error) => {
                        failed = Some(error);
                        None
                    }
                })?;
            }
        }
        failed.map_or(Ok(message), Err)
    }

    /// A mount with an empty directory or file in place of the node's.
    fn mount(&self, mount: &[u8]) -> Result<Vec<u8>, UnusableRequest> {
        let Some(host) = wire::texts(mount, &[2])?.pop() else {
            return Ok(mount.to_vec());
        };
        let inside = wire::texts(mount, &[1])?.pop().unwrap_or_default();
        // Files of the kubelet, which are gone with the pod.
        let is_file = Path::new(&host).is_file()
            || matches!(
                &*inside,
                "/etc/hosts" | "/etc/resolv.conf" | "/dev/termination-log"
            );
        let stand_in = bytes_of(&self.stand_in(&host, is_file)?);
        Ok(wire::edit(mount, &[2], &mut |_| Some(stand_in.clone()))?)
    }

    /// The stand-in for a path of the node; the same for the same path.
    fn stand_in(&self, recorded: &str, is_file: bool) -> io::Result<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = made.get(recorded) {
            return Ok(path.clone());
        }
        let path = self.root.join(made.len().to_string());
        if is_file {
            fs::write(&path, "")?
        } else {
            fs::create_dir(&path)?
        }
        made.insert(recorded.to_owned(), path.clone());
        Ok(path)
    }

    /// A parent of our own, of the same driver.
    fn parent(&self, recorded: &[u8]) -> Option<String> {
        let own = if recorded.ends_with(b".slice") {
            "criscope-replay.slice"
        } else {
            "/criscope-replay"
        };
        let is_set = !recorded.is_empty();
        let own = is_set.then(|| own.to_owned());
        self.cgroup_parent.clone().or(own)
    }

    /// Where logs and volumes are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Removes them, and the parent cgroup if it is ours and empty.
    pub(super) fn remove(&self) -> io::Result<()> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
        let hierarchies = hierarchies.flatten().map(|entry| entry.path());
        for dir in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            // The kernel refuses one that is in use.
            let _ = fs::remove_dir(dir.join("criscope-replay"));
        }
        fs::remove_dir_all(&self.root)
    }
}

/// The field with the configuration of the sandbox.
const fn sandbox_config(method: Method) -> Option<u64> {
    match method {
        Method::RunPodSandbox => Some(1),
        Method::CreateContainer | Method::PullImage => Some(3),
        _ => None,
    }
}

/// A relative path that stays below its directory.
fn within(path: &str) -> PathBuf {
    let parts = Path::new(path).components();
    let normal = parts.filter(|part| matches!(part, std::path::Component::Normal(_)));
    normal.collect()
}

fn bytes_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::cri::v1;

    #[test]
    fn nothing_of_the_node_is_used() {
        let stand_ins = StandInObjects::new(None, false).expect("made");
        let mount = |host: &str, inside: &str| v1::Mount {
            host_path: host.into(),
            container_path: inside.into(),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "s".into(),
            config: Some(v1::ContainerConfig {
                log_path: "app/0.log".into(),
                mounts: vec![
                    mount("/var/lib/kubelet/pods/u/volumes/data", "/data"),
                    mount("/var/lib/kubelet/pods/u/etc-hosts", "/etc/hosts"),
                    mount("", "/image"),
                ],
                ..Default::default()
            }),
            sandbox_config: Some(v1::PodSandboxConfig {
                log_directory: "/var/log/pods/shop_web_u".into(),
                linux: Some(v1::LinuxPodSandboxConfig {
                    cgroup_parent: "/kubepods/podu".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        };
        let bytes = request.encode_to_vec();
        let put = stand_ins.put(Method::CreateContainer, &bytes);
        let new = v1::CreateContainerRequest::decode(&*put.expect("put")).expect("decoded");
        let (config, sandbox) = (new.config.expect("one"), new.sandbox_config.expect("one"));
        let logs = Path::new(&sandbox.log_directory);
        assert!(logs.join("app").is_dir());
        assert_eq!(
            sandbox.linux.expect("one").cgroup_parent,
            "/criscope-replay"
        );
        let hosts: Vec<_> = config
            .mounts
            .iter()
            .map(|mount| &*mount.host_path)
            .collect();
        assert!(Path::new(hosts[0]).starts_with(stand_ins.root()));
        assert!(Path::new(hosts[1]).is_file());
        assert_eq!(hosts[2], "");
        // Containers of a pod share its directories.
        let again = stand_ins.put(Method::CreateContainer, &bytes);
        let again = v1::CreateContainerRequest::decode(&*again.expect("put")).expect("decoded");
        assert!(again.config.expect("one").mounts == config.mounts);
        assert_eq!(
            stand_ins.parent(b"kubepods-podu.slice").as_deref(),
            Some("criscope-replay.slice")
        );
        assert_eq!(stand_ins.parent(b""), None);
        stand_ins.remove().expect("removed");
        assert!(!stand_ins.root().exists());
        assert_eq!(within("../../etc/x"), Path::new("etc/x"));
    }
}
