//! Checks the path of a unix socket.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use tokio::net::UnixStream;

/// The state of a socket's path.
#[derive(Debug)]
pub(super) enum SocketState {
    /// No such file.
    Absent,
    /// A file, but not a socket.
    OtherFile,
    /// A socket without a listener.
    Stale,
    /// A socket with a listener; its process id, if the kernel reports it.
    Live(Option<i32>),
    /// No permission.
    Denied,
    /// Another error.
    Broken(io::Error),
}

/// Checks the path, and connects if it is a socket. The connection is closed at once.
pub(super) async fn probe(path: &Path) -> SocketState {
    match fs::metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => return SocketState::OtherFile,
        Ok(_) => {}
        Err(error) => return from_error(error),
    }
    match UnixStream::connect(path).await {
        // The kernel keeps the credentials of the process that called listen(2) (SO_PEERCRED, unix(7)).
        Ok(stream) => SocketState::Live(stream.peer_cred().ok().and_then(|peer| peer.pid())),
        Err(error) => from_error(error),
    }
}

fn from_error(error: io::Error) -> SocketState {
    match error.kind() {
        ErrorKind::NotFound => SocketState::Absent,
        ErrorKind::ConnectionRefused => SocketState::Stale,
        ErrorKind::PermissionDenied => SocketState::Denied,
        _ => SocketState::Broken(error),
    }
}
