//! A listening socket that other processes have too, as in a restart.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::stream::register;

/// A listening socket.
#[derive(Debug)]
pub struct SocketListener(AsyncFd<UnixListener>);

impl SocketListener {
    /// Takes a listening socket over. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be registered with the runtime.
    pub fn new(listener: UnixListener) -> io::Result<Self> {
        register(listener, Interest::READABLE).map(Self)
    }

    /// Accepts a connection. systemd sets the flags of a socket anew whenever a service that has it starts, and makes it blocking by default
    /// (systemd.service(5), `NonBlocking=`). The thread would wait then for a connection that another process took, and all calls with it.
    ///
    /// # Errors
    /// Those of accept(2), and if the runtime is shutting down.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let accept = |listener: &UnixListener| {
            listener.set_nonblocking(true)?;
            listener.accept().map(|(socket, _)| socket)
        };
        self.0.async_io(Interest::READABLE, accept).await
    }
}
