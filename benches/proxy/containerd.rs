//! A containerd of our own, with nothing of it outside two temporary folders.

use std::fs;
use std::path::{Path, PathBuf};

use criscope::cri::v1;
use tempfile::TempDir;

use crate::client::{Client, Reading};
use crate::error::{Error, IoContext, Result};
use crate::process::{Process, find};

/// The runtime that every path leads to.
pub(crate) struct Runtime {
    /// Its CRI socket.
    pub(crate) socket: PathBuf,
    /// What it is, for the report.
    pub(crate) version: String,
    // Ended before the folder it works in goes.
    _process: Option<Process>,
    _state: Option<TempDir>,
}

impl Runtime {
    /// One that somebody else started.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn existing(socket: PathBuf) -> Result<Self> {
        Ok(Self {
            version: version_of(&socket).await?,
            socket,
            _process: None,
            _state: None,
        })
    }

    /// Starts a containerd with its root in `folder` and its state and sockets in a folder of its own in `/run`.
    ///
    /// # Errors
    /// When it is not installed, this is not root, or it does not start.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let program = find("containerd", "containerd")?;
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Setup(
                "starting containerd needs root; give --upstream SOCKET to use a running one"
                    .to_owned(),
            ));
        }
        let state = tempfile::Builder::new()
            .prefix("criscope-bench-")
            .tempdir_in("/run")
            .during(|| "making a folder in /run".to_owned())?;
        let socket = state.path().join("containerd.sock");
        let config = folder.join("containerd.toml");
        fs::write(&config, settings(folder, state.path(), &socket))
            .during(|| format!("writing {}", config.display()))?;
        let mut process = Process::start(
            "containerd",
            &program,
            [Path::new("--config"), &config],
            &[],
            folder.join("containerd.log"),
        )?;
        process.wait_for_socket(&socket).await?;
        Ok(Self {
            version: version_of(&socket).await?,
            socket,
            _process: Some(process),
            _state: Some(state),
        })
    }
}

/// What the runtime behind a socket says of itself.
///
/// # Errors
/// When it does not answer, or says nothing.
pub(crate) async fn version_of(socket: &Path) -> Result<String> {
    let mut client = Client::connect(socket, Reading::FAST).await?;
    let answer: v1::VersionResponse = client
        .ask("Version", &v1::VersionRequest::default())
        .await?;
    if answer.runtime_name.is_empty() {
        return Err(Error::Setup(format!(
            "{}: no runtime name in the version",
            socket.display()
        )));
    }
    Ok(format!(
        "{} {}",
        answer.runtime_name, answer.runtime_version
    ))
}

/// The CRI plugin and what it needs. No network is set up, as no pod is ever run.
fn settings(root: &Path, state: &Path, socket: &Path) -> String {
    let (root, state, socket) = (root.display(), state.display(), socket.display());
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
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/cni"
    conf_dir = "{root}/cni"
"#
    )
}
