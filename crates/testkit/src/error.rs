//! Errors of starting, measuring and writing.

use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

/// A missed budget is a result of a benchmark, not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{program} is not installed: apt-get install {package}")]
    Missing { program: String, package: String },
    #[error("{0}")]
    Setup(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{name} (pid {pid}) {problem}; the end of {}:\n{tail}", log.display())]
    Process {
        name: &'static str,
        pid: u32,
        problem: String,
        log: PathBuf,
        tail: String,
    },
    #[error("connecting to {}: {cause}", socket.display())]
    Connect { socket: PathBuf, cause: String },
    #[error("{method}: {cause}")]
    Call { method: String, cause: String },
    #[error("interrupted")]
    Interrupted,
}

/// Adds the operation to an I/O error.
pub trait IoContext<T> {
    /// Wraps the error with `what`, which names the path.
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what(),
            source,
        })
    }
}
