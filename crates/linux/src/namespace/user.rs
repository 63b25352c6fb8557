//! The helper process that creates a user namespace with others in it.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Error, Kind};
use crate::idmap::Mappings;

/// Timeout of the helper, in milliseconds. It makes one system call.
const MAP_WRITE_TIMEOUT_MS: u16 = 10_000;

/// The helper, in its namespaces. It is killed and reaped when this is dropped; if the daemon is killed, it exits.
pub(super) struct Maker {
    child: Child,
    program: PathBuf,
}

impl Maker {
    /// Starts `program user-namespace KIND...` and waits until it is in its namespaces.
    pub(super) fn start(program: &Path, kinds: &[Kind]) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .arg("user-namespace")
            .args(kinds.iter().map(|kind| kind.name()))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::Helper {
            program: program.to_owned(),
            why: error.to_string(),
        })?;
        let mut maker = Self {
            child,
            program: program.to_owned(),
        };
        maker.wait()?;
        Ok(maker)
    }

    fn wait(&mut self) -> Result<(), Error> {
        let Some(mut stdout) = self.child.stdout.take() else {
            return Err(self.failed("it has no stdout"));
        };
        let mut ready = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(MAP_WRITE_TIMEOUT_MS)) {
            Ok(0) => return Err(self.failed("it does not answer")),
            Ok(_) => {}
            Err(error) => return Err(self.failed(error.desc())),
        }
        let mut first = [0; 1];
        if matches!(stdout.read(&mut first), Ok(1)) {
            return Ok(());
        }
        // The process has ended, or is about to: its output is complete.
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(1024).read_to_string(&mut words);
        }
        Err(self.failed(words.trim()))
    }

    /// The path of its namespaces.
    pub(super) fn namespaces(&self) -> PathBuf {
        self.file("ns")
    }

    /// Moves the calling thread into these namespaces, except the user namespace: it keeps its capabilities.
    pub(super) fn enter(&self, kinds: &[Kind]) -> Result<(), Error> {
        for kind in kinds {
            let path = self.namespaces().join(kind.name());
            let file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
            nix::sched::setns(file, kind.flag())
                .map_err(|error| Error::io("enter", &path, error))?;
        }
        Ok(())
    }

    /// Writes the mappings of the user namespace, which is possible only once.
    pub(super) fn map(&self, mappings: &Mappings) -> Result<(), Error> {
        for (file, text) in [
            ("uid_map", mappings.uid_table()),
            ("gid_map", mappings.gid_table()),
        ] {
            let path = self.file(file);
            fs::write(&path, text).map_err(|error| Error::io("write", &path, error))?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Helper {
            program: self.program.clone(),
            why: why.to_owned(),
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
