//! The client of the load socket, for `criscope load-image`.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::{Answer, Loaded, MESSAGE, socket};
use crate::command_socket::{self, connect, read_message, send};

/// Why an archive was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No runtime listens on the socket.
    #[error("criscope is not running: no listener at {}", .0.display())]
    NotRunning(PathBuf),
    /// This user has no access, or the runtime disconnected.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The archive was refused.
    #[error("{0}")]
    Failed(String),
}

/// Returns whether a runtime with this state directory listens, even if this user has no access.
#[must_use]
pub fn is_served(state: &Path) -> bool {
    command_socket::is_served(&socket(state))
}

/// Makes the runtime with this state directory import an archive, a seekable file. `progress` receives the bytes done and
/// the total, 0 if unknown.
///
/// # Errors
/// [`LoadError`]. The runtime cancels the import when this process exits.
pub fn load(
    state: &Path,
    file: &File,
    name: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Loaded>, LoadError> {
    let path = socket(state);
    let broken = |source: io::Error| LoadError::Io {
        path: path.clone(),
        source,
    };
    let Some(stream) = connect(&path).map_err(broken)? else {
        return Err(LoadError::NotRunning(path));
    };
    let mut end = name.len().min(MESSAGE);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let text = if end == 0 { "-" } else { &name[..end] };
    send(&stream, text, file).map_err(broken)?;
    let mut answers = BufReader::new(stream);
    loop {
        let answer = read_message(&mut answers).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                LoadError::Failed("criscope ended before it was done".to_owned())
            }
            _ => broken(error),
        })?;
        match answer {
            Answer::Progress(done, all) => progress(done, all),
            Answer::Loaded(images) => return Ok(images),
            Answer::Failed(why) => return Err(LoadError::Failed(why)),
        }
    }
}
