//! The state of this node's installation, in a file for the agent: it tells the state in metrics even if the daemon never ran.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use criscope::lifecycle::node::rollout::{INSTALL_STATE, InstallState};

use super::NodeState;

/// The file, next to the daemon's socket for agents. It is on a tmpfs.
const STATE_FILE: &str = "install.state";

/// The file with the state of the installation.
#[derive(Clone, Debug)]
pub struct InstallStateFile {
    path: PathBuf,
}

impl InstallStateFile {
    /// The file in this directory.
    pub fn at(directory: &Path) -> Self {
        Self {
            path: directory.join(STATE_FILE),
        }
    }

    /// The state; `None` if no installer has run since the node started.
    pub fn read(&self) -> Option<InstallState> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut all = InstallState::ALL.into_iter();
        all.find(|state| state.name() == text.trim())
    }

    /// Replaces the state.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, state: NodeState) -> io::Result<()> {
        let new = self.path.with_extension("state.new");
        fs::write(&new, format!("{}\n", install_state(state).name()))?;
        fs::rename(new, &self.path)
    }

    /// Removes the file, if it is there.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The value of the metric for a state.
const fn install_state(state: NodeState) -> InstallState {
    match state {
        NodeState::Waiting | NodeState::Turn => InstallState::Waiting,
        NodeState::Working => InstallState::Working,
        NodeState::Soaking => InstallState::Soaking,
        NodeState::Done => InstallState::Done,
        NodeState::Failed => InstallState::Failed,
        NodeState::Lost => InstallState::Lost,
        NodeState::Skipped => InstallState::Skipped,
    }
}

/// The metric, in the text format of Prometheus.
pub fn metrics_text(state: InstallState) -> String {
    let name = INSTALL_STATE.full_name();
    let mut text = format!(
        "# HELP {name} {}\n# TYPE {name} gauge\n",
        INSTALL_STATE.help
    );
    for value in InstallState::ALL {
        let flag = u8::from(value == state);
        text += &format!("{name}{{state=\"{}\"}} {flag}\n", value.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_reads_what_the_installer_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = InstallStateFile::at(dir.path());
        assert_eq!(file.read(), None);
        for state in NodeState::ALL {
            file.write(*state).expect("written");
            let read = file.read().expect("a state");
            assert_eq!(read, install_state(*state));
            let text = metrics_text(read);
            let set = format!("criscope_install_state{{state=\"{}\"}} 1\n", read.name());
            assert!(text.contains(&set), "{text}");
            assert_eq!(text.matches("\"} 1\n").count(), 1, "{text}");
        }
        file.remove().expect("removed");
        file.remove().expect("not there");
        assert_eq!(file.read(), None);
    }
}
