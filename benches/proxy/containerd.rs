//! A private containerd, with all its files in two temporary directories.

use std::path::{Path, PathBuf};
use std::process::Command;

use criscope::cri::v1;
use criscope_testkit::containerd::Config;
use tempfile::TempDir;

use crate::client::{Client, Reading};
use crate::error::{Error, IoContext, Result};
use crate::process::{Process, find};

/// The runtime behind every path.
pub(crate) struct Runtime {
    /// Its CRI socket.
    pub(crate) socket: PathBuf,
    /// Its name and version, for the report.
    pub(crate) version: String,
    // Dropped before its directories are removed.
    _process: Option<Process>,
    _state: Option<TempDir>,
}

impl Runtime {
    /// Uses a running runtime.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn existing(socket: PathBuf) -> Result<Self> {
        Ok(Self {
            version: version_of(&socket).await?,
            socket,
            _process: None,
            _state: None,
        })
    }

    /// Starts a containerd with its root in `folder`, and its state and sockets in a temporary directory in `/run`.
    ///
    /// # Errors
    /// If it is not installed, the user is not root, or it does not start.
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
        let config = Config {
            root: folder.to_owned(),
            state: state.path().to_owned(),
            // No pod is run.
            sandbox_image: String::new(),
            cni_conf: folder.join("cni"),
            cni_bin: folder.join("cni"),
            runc: PathBuf::from("runc"),
            cri: String::new(),
            log_level: "warn",
        };
        let socket = config.socket();
        let mut command = Command::new(program);
        command.arg("--config").arg(config.write()?);
        let log = folder.join("containerd.log");
        let mut process = Process::spawn_bound("containerd", &command, log)?;
        process.wait_for_socket(&socket).await?;
        Ok(Self {
            version: version_of(&socket).await?,
            socket,
            _process: Some(process),
            _state: Some(state),
        })
    }
}

/// The name and version of the runtime behind a socket.
///
/// # Errors
/// If it does not answer, or the answer is empty.
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
