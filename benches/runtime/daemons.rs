//! The runtimes: each with a configuration, directories and a network of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cri::{Cri, Place};
use crate::error::{IoContext, Result};
use crate::image::Image;
use crate::network::{Network, PLUGINS};
use crate::process::{Process, find};

/// A runtime that runs.
pub(crate) struct Daemon {
    /// Its client.
    pub(crate) cri: Cri,
    /// What it says it is.
    pub(crate) version: String,
    /// Itself.
    pub(crate) process: Process,
    /// Its directory below `/run`: in the command line of all its helpers.
    pub(crate) state: PathBuf,
}

/// Where a runtime is to be, and what it has.
pub(crate) struct Room<'a> {
    /// On a disk.
    pub(crate) root: PathBuf,
    /// Below `/run`.
    pub(crate) state: PathBuf,
    /// Its network.
    pub(crate) network: &'a Network,
    /// The image of its pods.
    pub(crate) image: &'a Image,
    /// What its pods belong to.
    pub(crate) place: Place,
}

impl Daemon {
    /// Starts containerd with Debian's runc.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub(crate) async fn containerd(room: &Room<'_>, runc: &Path) -> Result<Self> {
        let program = find("containerd", "containerd")?;
        let socket = room.state.join("containerd.sock");
        let config = room.write("containerd.toml", &containerd_toml(room, &socket, runc))?;
        let mut process = Process::start(
            "containerd",
            &program,
            [Path::new("--config"), &config],
            &[],
            room.root.join("log"),
        )?;
        process.wait_for_socket(&socket).await?;
        Self::of(process, &socket, room).await
    }

    /// Starts criscope with an OCI runtime. crun needs a controller that not every node has mounted: with
    /// `own_hugetlb` criscope runs in a mount namespace of its own that has.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn criscope(
        room: &Room<'_>,
        programs: [&Path; 2],
        oci: (&str, &Path),
        own_hugetlb: bool,
    ) -> Result<Self> {
        let [criscope, shim] = programs;
        let socket = room.state.join("criscope.sock");
        let config = room.write("criscope.toml", &criscope_toml(room, &socket, shim, oci))?;
        let (program, mut args) = (criscope.to_owned(), Vec::new());
        let program = if own_hugetlb {
            let mount = "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb && exec \"$@\"";
            args.extend(["--mount", "sh", "-c", mount, "sh"].map(PathBuf::from));
            args.push(program);
            find("unshare", "util-linux")?
        } else {
            program
        };
        args.extend(["serve".into(), "--config".into(), config]);
        let log = room.root.join("log");
        let mut process = Process::start("criscope", &program, args, &[], log)?;
        process.wait_for_socket(&socket).await?;
        Self::of(process, &socket, room).await
    }

    async fn of(process: Process, socket: &Path, room: &Room<'_>) -> Result<Self> {
        let mut cri = Cri::connect(socket, room.place.clone(), &room.image.app).await?;
        cri.pull().await?;
        Ok(Self {
            version: cri.version().await?,
            cri,
            process,
            state: room.state.clone(),
        })
    }
}

impl Room<'_> {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.root.join(name);
        fs::create_dir_all(&self.root)
            .and_then(|()| fs::create_dir_all(&self.state))
            .and_then(|()| fs::write(&file, text))
            .during(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

fn containerd_toml(room: &Room<'_>, socket: &Path, runc: &Path) -> String {
    let (root, state) = (room.root.display(), room.state.display());
    let (pause, certs) = (&room.image.pause, room.image.certs.display());
    let (socket, runc, conf) = (socket.display(), runc.display(), room.network.dir.display());
    format!(
        r#"version = 2
root = "{root}/containerd"
state = "{state}/state"
temp = "{root}/temp"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{socket}"
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{conf}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{certs}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        Root = "{state}/runc"
"#
    )
}

fn criscope_toml(
    room: &Room<'_>,
    socket: &Path,
    shim: &Path,
    (name, oci): (&str, &Path),
) -> String {
    let (root, state) = (room.root.display(), room.state.display());
    let (socket, shim, oci) = (socket.display(), shim.display(), oci.display());
    let (conf, certs) = (room.network.dir.display(), room.image.certs.display());
    format!(
        r#"[server]
listen = "unix://{socket}"
[admin]
listen = "127.0.0.1:0"
[backends.builtin]
kind = "builtin"
[runtime]
root = "{root}/runtime"
state = "{state}/runtime"
shim = "{shim}"
restrict_oom_score_adj = true
[runtime.handlers.{name}]
path = "{oci}"
[runtime.cni]
conf_dir = "{conf}"
bin_dirs = ["{PLUGINS}"]
cache_dir = "{root}/cni"
[runtime.images]
certs_dirs = ["{certs}"]
"#
    )
}
