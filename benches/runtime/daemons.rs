//! The runtimes, each with its own configuration, directories and network.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use criscope_testkit::bench::admin::free_port;
use criscope_testkit::containerd;
use criscope_testkit::daemon::{PLUGINS, RuntimeConfig};

use crate::cri::{Cri, Place};
use crate::error::{IoContext, Result};
use crate::image::Image;
use crate::network::Network;
use crate::process::{Process, find};

/// A running runtime.
pub(crate) struct Daemon {
    /// Its client.
    pub(crate) cri: Cri,
    /// Its name and version.
    pub(crate) version: String,
    /// Its process.
    pub(crate) process: Process,
    /// Its directory below `/run`, which is in the command line of all its helpers.
    pub(crate) state: PathBuf,
    /// Its CRI socket.
    pub(crate) socket: PathBuf,
    /// Its metrics, and their path.
    pub(crate) metrics: (SocketAddr, &'static str),
    start: Start,
}

/// How a daemon is started, again.
struct Start {
    name: &'static str,
    command: Command,
    log: PathBuf,
}

impl Start {
    fn spawn(&self) -> Result<Process> {
        Process::spawn_bound(self.name, &self.command, self.log.clone())
    }
}

/// The environment of a runtime.
pub(crate) struct Room<'a> {
    /// On a disk.
    pub(crate) root: PathBuf,
    /// Below `/run`.
    pub(crate) state: PathBuf,
    /// Its network.
    pub(crate) network: &'a Network,
    /// The image of its pods.
    pub(crate) image: &'a Image,
    /// The common settings of its pods.
    pub(crate) place: Place,
}

impl Daemon {
    /// Starts containerd with Debian's runc.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub(crate) async fn containerd(room: &Room<'_>, runc: &Path) -> Result<Self> {
        let program = find("containerd", "containerd")?;
        let admin = free_port()?;
        let config = containerd::Config {
            root: room.root.clone(),
            state: room.state.clone(),
            sandbox_image: room.image.pause.clone(),
            cni_conf: room.network.dir.clone(),
            cni_bin: PLUGINS.into(),
            runc: runc.to_owned(),
            cri: format!(
                "[plugins.\"io.containerd.grpc.v1.cri\".registry]\n    config_path = {:?}\n\
                 [metrics]\n  address = \"{admin}\"",
                room.image.certs
            ),
            log_level: "warn",
        };
        let socket = config.socket();
        let mut command = Command::new(program);
        command.arg("--config").arg(config.write()?);
        Self::of("containerd", command, &socket, (admin, "/v1/metrics"), room).await
    }

    /// Starts criscope with an OCI runtime. crun requires a controller that not every node has mounted: with `own_hugetlb`
    /// criscope runs in a mount namespace that has it.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn criscope(
        room: &Room<'_>,
        programs: [&Path; 2],
        oci: (&str, &Path),
        own_hugetlb: bool,
    ) -> Result<Self> {
        let [criscope, shim] = programs;
        let socket = room.state.join("criscope.sock");
        let admin = free_port()?;
        let toml = criscope_toml(room, &socket, admin, shim, oci);
        let config = room.write("criscope.toml", &toml)?;
        let mut command = if own_hugetlb {
            let mount = "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb && exec \"$@\"";
            let mut unshare = Command::new(find("unshare", "util-linux")?);
            unshare
                .args(["--mount", "sh", "-c", mount, "sh"])
                .arg(criscope);
            unshare
        } else {
            Command::new(criscope)
        };
        command.args(["serve", "--config"]).arg(config);
        Self::of("criscope", command, &socket, (admin, "/metrics"), room).await
    }

    async fn of(
        name: &'static str,
        command: Command,
        socket: &Path,
        metrics: (SocketAddr, &'static str),
        room: &Room<'_>,
    ) -> Result<Self> {
        let log = room.root.join("log");
        let start = Start { name, command, log };
        let mut process = start.spawn()?;
        process.wait_for_socket(socket).await?;
        let mut cri = Cri::connect(socket, room.place.clone(), &room.image.app).await?;
        cri.pull().await?;
        Ok(Self {
            version: cri.version().await?,
            cri,
            process,
            state: room.state.clone(),
            socket: socket.to_owned(),
            metrics,
            start,
        })
    }

    /// Kills the daemon with SIGKILL and starts it again. Its client does not connect by itself.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let name = self.start.name;
        self.process
            .kill()
            .during(|| format!("waiting for {name}"))?;
        self.process = self.start.spawn()?;
        Ok(())
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

fn criscope_toml(
    room: &Room<'_>,
    socket: &Path,
    admin: SocketAddr,
    shim: &Path,
    oci: (&str, &Path),
) -> String {
    let config = RuntimeConfig {
        root: &room.root.join("runtime"),
        state: &room.state.join("runtime"),
        shim: Some(shim),
        handlers: &[oci],
        cni_conf: &room.network.dir,
        cni_bins: &[Path::new(PLUGINS)],
        cni_cache: &room.root.join("cni"),
        more: "restrict_oom_score_adj = true",
    };
    format!(
        "[server]\nlisten = \"unix://{}\"\n[admin]\nlisten = \"{admin}\"\n\
         [backends.builtin]\nkind = \"builtin\"\n{config}\
         [runtime.images]\ncerts_dirs = [{:?}]\n",
        socket.display(),
        room.image.certs
    )
}
