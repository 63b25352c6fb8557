//! The runtimes behind the proxy, and which of them a process works for. Other engines on the node start the same programs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A runtime behind the proxy.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in the configuration.
    pub backend: Arc<str>,
    /// Its CRI socket.
    pub socket: PathBuf,
    /// The process that listens there; `None` while that is unknown.
    pub pid: Option<u32>,
    /// Whether it says that it is containerd.
    pub is_containerd: bool,
}

/// Returns the runtimes behind the proxy.
pub type Upstreams = Arc<dyn Fn() -> Vec<Upstream> + Send + Sync>;

/// Whose work a process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Of the backend with this name.
    Backend(Arc<str>),
    /// Of another engine.
    Other,
    /// Nothing says whose.
    Unknown,
}

/// The namespace of containerd in which it keeps the containers of the CRI (containerd, `internal/cri/constants`).
const CRI_NAMESPACE: &[u8] = b"k8s.io";

/// The beginning of the directory above those of containerd's namespaces: `io.containerd.runtime.v2.task`.
const TASKS: &[u8] = b"io.containerd.runtime.";

/// The directory in which podman's monitors leave exit codes.
const PODMAN: &[u8] = b"libpod";

/// The owner of an OCI runtime by its own command line: only that it is another engine's can be seen there.
pub(super) fn is_of_another_namespace(cmdline: &[u8]) -> bool {
    cmdline.split(|b| *b == 0).any(|arg| {
        let mut parts = arg.split(|b| matches!(b, b'/' | b'='));
        parts.any(|part| part == PODMAN) || namespace(arg).is_some_and(|it| it != CRI_NAMESPACE)
    })
}

/// The namespace in a path below the directory of containerd's tasks.
fn namespace(arg: &[u8]) -> Option<&[u8]> {
    let mut parts = arg.split(|b| *b == b'/');
    parts.find(|part| part.starts_with(TASKS))?;
    parts.next().filter(|it| !it.is_empty())
}

/// What the command line of a shim or monitor says about its owner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MonitorArgs {
    /// The socket of the containerd that started it.
    address: Option<PathBuf>,
    /// Whether another engine started it.
    other: bool,
    /// Whether it has a name for its container, as conmon has.
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

    /// The owner, of these runtimes.
    pub(super) fn owner(&self, upstreams: &[Upstream]) -> Owner {
        if self.other {
            return Owner::Other;
        }
        let Some(address) = &self.address else {
            return Owner::Unknown;
        };
        let mut known = upstreams.iter();
        match known.find(|upstream| is_same(&upstream.socket, address)) {
            Some(upstream) => Owner::Backend(Arc::clone(&upstream.backend)),
            None => Owner::Other,
        }
    }
}

/// Returns whether two paths are the same socket: `/var/run` is mostly a link.
fn is_same(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    a == b || id(a).is_some_and(|a| Some(a) == id(b))
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
        assert_eq!(owner("k8s.io", link), Owner::Backend("main".into()));
        assert_eq!(owner("moby", link), Owner::Other);
        assert_eq!(owner("k8s.io", "/run/other.sock"), Owner::Other);
        let conmon = MonitorArgs::read(&line(&["conmon", "-c", "ab", "-n", "k8s_POD"]));
        assert!(conmon.named && conmon.owner(&upstreams) == Owner::Unknown);
    }
}
