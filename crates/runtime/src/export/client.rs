//! The client of the export socket, for `criscope export`.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{Answer, Exported, Failure, Progress, Request, socket};
use crate::command_socket::{self, connect, send, write_message};

const BUFFER: usize = 256 << 10;

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No runtime listens on the socket.
    #[error("criscope is not running: no listener at {}", .0.display())]
    NotRunning(PathBuf),
    /// This user has no access, or the runtime disconnected.
    #[error("{}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The archive cannot be written.
    #[error("the archive cannot be written: {0}")]
    Output(io::Error),
    /// The images cannot be exported.
    #[error("{}", .0.reason)]
    Failed(Failure),
}

impl ExportError {
    /// Returns whether an image came encrypted, and the request does not allow that.
    #[must_use]
    pub fn is_decrypted(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.is_decrypted)
    }

    /// An error of the store.
    #[must_use]
    pub fn failed(error: criscope_image::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns whether a runtime with this state directory listens, even if this user has no access.
#[must_use]
pub fn is_served(state: &Path) -> bool {
    command_socket::is_served(&socket(state))
}

/// Makes the runtime with this state directory export images, and writes the archive.
///
/// # Errors
/// [`ExportError`]. The runtime ends the export when this process does.
pub fn export(
    state: &Path,
    request: &Request,
    to: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Exported>, ExportError> {
    let path = socket(state);
    let broken = |source: io::Error| ExportError::Socket {
        path: path.clone(),
        source,
    };
    let Some(stream) = connect(&path).map_err(broken)? else {
        return Err(ExportError::NotRunning(path));
    };
    let (archive, end) = io::pipe().map_err(broken)?;
    send(&stream, "-", &end).map_err(broken)?;
    // Only the daemon may have it: its end is the end of the archive.
    drop(end);
    write_message(&stream, request).map_err(broken)?;
    let mut transfer = Transfer {
        archive: Some(archive),
        answers: stream,
        line: Vec::new(),
        last: None,
    };
    transfer.run(to, progress, &broken)
}

fn is_ready(fd: &PollFd<'_>) -> bool {
    !fd.revents().is_empty()
}

/// An archive on its way.
struct Transfer {
    /// `None` at the end of the archive.
    archive: Option<PipeReader>,
    answers: UnixStream,
    /// The beginning of a line.
    line: Vec<u8>,
    last: Option<Answer>,
}

impl Transfer {
    fn run(
        &mut self,
        to: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
        broken: &dyn Fn(io::Error) -> ExportError,
    ) -> Result<Vec<Exported>, ExportError> {
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.last.take() {
                Some(Answer::Failed(failure)) => return Err(ExportError::Failed(failure)),
                // The rest of the archive is in the pipe.
                Some(Answer::Exported(images)) if self.archive.is_none() => return Ok(images),
                Some(Answer::Progress(now)) => progress(now),
                other => self.last = other,
            }
            let (has_archive, has_answer) = self.wait().map_err(broken)?;
            if has_archive && let Some(archive) = &mut self.archive {
                let length = archive.read(&mut buffer).map_err(broken)?;
                if length == 0 {
                    self.archive = None;
                }
                to.write_all(&buffer[..length])
                    .map_err(ExportError::Output)?;
            }
            if has_answer && self.last.is_none() {
                self.answer().map_err(broken)?;
            }
        }
    }

    /// Waits for the archive or an answer.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let wants_answer = if self.last.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![PollFd::new(&self.answers, wants_answer)];
        fds.extend(
            self.archive
                .as_ref()
                .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Err(Errno::INTR) => return Ok((false, false)),
            found => found?,
        };
        Ok((fds.get(1).is_some_and(is_ready), is_ready(&fds[0])))
    }

    /// Reads an answer up to the end of its line.
    fn answer(&mut self) -> io::Result<()> {
        let mut byte = [0];
        loop {
            if self.answers.read(&mut byte)? == 0 {
                let reason = "criscope ended before it was done";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
            }
            if byte[0] == b'\n' {
                self.last = Some(serde_json::from_slice(&self.line)?);
                self.line.clear();
                return Ok(());
            }
            self.line.push(byte[0]);
        }
    }
}
