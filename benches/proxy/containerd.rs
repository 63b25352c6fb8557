//! A containerd of our own, with nothing of it outside two temporary folders.

use std::path::{Path, PathBuf};
use std::process::Command;

use criscope::cri::v1;
use criscope_testkit::containerd::Config;
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
