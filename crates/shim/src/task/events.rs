//! The service to which containerd shims send their events (containerd, `services/events/ttrpc`). Exits are waited for and OOM kills
//! are counted by other means, so events are only acknowledged: a shim without this service keeps and repeats them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use criscope_wire::ttrpc::{self, Request, Response};

/// The socket in the pod's directory.
pub(super) const SOCKET: &str = "events.sock";

/// A containerd shim has one connection.
const MAX_CONNECTIONS: usize = 16;

#[derive(Debug)]
pub(crate) struct Events {
    listener: UnixListener,
    connections: Vec<(UnixStream, Vec<u8>)>,
}

impl Events {
    pub(crate) fn listen() -> io::Result<Self> {
        let _left = fs::remove_file(SOCKET);
        let listener = UnixListener::bind(SOCKET)?;
        fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            connections: Vec::new(),
        })
    }

    /// The descriptors to wait for: connections, and requests on them.
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let full = self.connections.len() >= MAX_CONNECTIONS;
        let listener = (!full).then(|| self.listener.as_fd());
        let connections = self.connections.iter().map(|(stream, _)| stream.as_fd());
        listener.into_iter().chain(connections)
    }

    /// Accepts connections and acknowledges events.
    pub(crate) fn serve(&mut self, room: &mut [u8]) {
        if self.connections.len() < MAX_CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            self.connections.push((stream, Vec::new()));
        }
        self.connections
            .retain_mut(|(stream, input)| acknowledge(stream, input, room).is_ok());
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _gone = fs::remove_file(SOCKET);
    }
}

fn acknowledge(stream: &mut UnixStream, input: &mut Vec<u8>, room: &mut [u8]) -> io::Result<()> {
    match stream.read(room) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => input.extend_from_slice(&room[..n]),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(e) => return Err(e),
    }
    while let Some(event) = ttrpc::decode::<Request>(input).map_err(io::Error::other)? {
        input.drain(..event.length);
        let mut answer = Vec::new();
        ttrpc::encode(&mut answer, event.stream, &Response::default()).map_err(io::Error::other)?;
        // A few bytes, which fit unless the shim does not read its answers.
        stream.write_all(&answer)?;
    }
    Ok(())
}
