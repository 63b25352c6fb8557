//! The runtimes behind the proxy, and the runtime that a process works for. Other engines on the node start the same
//! programs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A runtime behind the proxy.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The backend's name in the configuration.
    pub backend: Arc<str>,
    /// The CRI socket.
    pub socket: PathBuf,
    /// The process that listens on the socket; `None` while it is unknown.
    pub pid: Option<u32>,
    /// Set if the runtime reports that it is containerd.
    pub is_containerd: bool,
}

/// Returns the runtimes behind the proxy.
pub type Upstreams = Arc<dyn Fn() -> Vec<Upstream> + Send + Sync>;

/// The engine that a process works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessOwner {
    /// The backend with this name.
    Backend(Arc<str>),
    /// Another engine.
    Other,
    /// The command lines and ancestors do not tell.
    Unknown,
}

/// containerd's namespace for the containers of the CRI (containerd, `internal/cri/constants`).
const CRI_NAMESPACE: &[u8] = b"k8s.io";

/// The beginning of the directory above those of containerd's namespaces: `io.containerd.runtime.v2.task`.
const TASK_DIR_PREFIX: &[u8] = b"io.containerd.runtime.";

/// The directory in which podman's monitors leave exit codes.
const PODMAN_DIR: &[u8] = b"libpod";

/// Returns whether the command line of an OCI runtime shows that another engine started it.
pub(super) fn is_of_another_namespace(cmdline: &[u8]) -> bool {
    cmdline.split(|b| *b == 0).any(|arg| {
        let mut parts = arg.split(|b| matches!(b, b'/' | b'='));
        parts.any(|part| part == PODMAN_DIR)
            || namespace(arg).is_some_and(|name| name != CRI_NAMESPACE)
    })
}

/// The namespace in a path below the directory of containerd's tasks.
fn namespace(arg: &[u8]) -> Option<&[u8]> {
    let mut parts = arg.split(|b| *b == b'/');
    parts.find(|part| part.starts_with(TASK_DIR_PREFIX))?;
    parts.next().filter(|name| !name.is_empty())
}

/// The arguments of a shim or monitor that tell its owner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MonitorArgs {
    /// The socket of the containerd that started the shim.
    address: Option<PathBuf>,
    /// Set if another engine started the shim or monitor.
    other: bool,
    /// Set if the container has a name there: conmon passes one.
    pub(super) named: bool,
}

impl MonitorArgs {
    /// Parses a command line.
    pub(super) fn read(cmdline: &[u8]) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let mut args = cmdline.split(|b| *b == 0).skip(1);
        let mut read = Self {
            other: is_of_another_namespace(cmdline),
            ..Self::default()
        };
        while let Some(arg) = args.next() {
            let flag = arg.strip_prefix(b"-").unwrap_or_default();
            match flag.strip_prefix(b"-").unwrap_or(flag) {
                b"address" => {
                    let path = args.next().map(std::ffi::OsStr::from_bytes);
                    read.address = path.map(PathBuf::from);
                }
                b"namespace" => read.other |= args.next() != Some(CRI_NAMESPACE),
                b"n" | b"name" => read.named = true,
                _ => {}
            }
        }
        read
    }

    /// The owner among these runtimes.
    pub(super) fn owner(&self, upstreams: &[Upstream]) -> ProcessOwner {
        if self.other {
            return ProcessOwner::Other;
        }
        let Some(address) = &self.address else {
            return ProcessOwner::Unknown;
        };
        let mut known = upstreams.iter();
        match known.find(|upstream| is_same(&upstream.socket, address)) {
            Some(upstream) => ProcessOwner::Backend(Arc::clone(&upstream.backend)),
            None => ProcessOwner::Other,
        }
    }
}

/// Returns whether two paths are the same socket: `/var/run` is mostly a link.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b
        || match (fs::metadata(a), fs::metadata(b)) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> Vec<u8> {
        args.join("\0").into_bytes()
    }

    #[test]
    fn another_engine_is_known_by_its_directories() {
        let task = "/run/containerd/io.containerd.runtime.v2.task";
        for (args, other) in [
            (
                &["runc", "--bundle", &format!("{task}/k8s.io/ab")][..],
                false,
            ),
            (&["runc", "--bundle", &format!("{task}/moby/ab")], true),
            (
                &["runc", &format!("--log={task}/default/ab/log.json")],
                true,
            ),
            (&["crun", "--root=/run/crun", "create", "ab"], false),
            (&["conmon", "--exit-dir", "/run/libpod/exits"], true),
            (&["runc"], false),
        ] {
            assert_eq!(is_of_another_namespace(&line(args)), other, "{args:?}");
        }
    }

    #[test]
    fn a_shim_belongs_to_the_containerd_at_its_address() {
        let dir = tempfile::tempdir().expect("dir");
        let (socket, link) = (dir.path().join("a.sock"), dir.path().join("link.sock"));
        fs::write(&socket, "").expect("socket");
        std::os::unix::fs::symlink(&socket, &link).expect("link");
        let upstreams = [Upstream {
            backend: "main".into(),
            socket,
            pid: None,
            is_containerd: true,
        }];
        let owner = |namespace: &str, address: &str| {
            let args = [
                "shim",
                "-namespace",
                namespace,
                "-id",
                "ab",
                "-address",
                address,
            ];
            MonitorArgs::read(&line(&args)).owner(&upstreams)
        };
        let link = link.to_str().expect("utf-8");
        assert_eq!(owner("k8s.io", link), ProcessOwner::Backend("main".into()));
        assert_eq!(owner("moby", link), ProcessOwner::Other);
        assert_eq!(owner("k8s.io", "/run/other.sock"), ProcessOwner::Other);
        let conmon = MonitorArgs::read(&line(&["conmon", "-c", "ab", "-n", "k8s_POD"]));
        assert!(conmon.named && conmon.owner(&upstreams) == ProcessOwner::Unknown);
    }
}
