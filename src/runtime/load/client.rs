//! The client of the load socket, for `criscope load-image`.

use std::fs::File;
use std::io::{self, BufReader, IoSlice};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{Answer, Loaded, MESSAGE, read_answer, socket};

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
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    match UnixStream::connect(socket(state)) {
        Ok(_) => true,
        Err(error) => !gone.contains(&error.kind()),
    }
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
    let stream = match UnixStream::connect(&path) {
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused]
                .contains(&error.kind()) =>
        {
            return Err(LoadError::NotRunning(path));
        }
        stream => stream.map_err(broken)?,
    };
    send(&stream, file, name).map_err(broken)?;
    let mut answers = BufReader::new(stream);
    loop {
        let answer = read_answer(&mut answers).map_err(|error| match error.kind() {
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

/// Sends the name and the descriptor in one message.
fn send(stream: &UnixStream, file: &File, name: &str) -> io::Result<()> {
    let mut end = name.len().min(MESSAGE);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let fds = [file.as_fd()];
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // At least one byte: an empty message cannot carry a descriptor.
    let text = if end == 0 { "-" } else { &name[..end] };
    sendmsg(
        stream,
        &[IoSlice::new(text.as_bytes())],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
