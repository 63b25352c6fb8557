//! Why the benchmark stopped.

use std::io;
use std::path::PathBuf;

/// Result of anything that can stop the benchmark.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why the benchmark stopped. A budget that is missed is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        program: &'static str,
        package: &'static str,
    },
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

/// Adds what was being done to an I/O error.
pub(crate) trait IoContext<T> {
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
