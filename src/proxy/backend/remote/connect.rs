//! Opens connections to a runtime.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use tokio::io::BufReader;

use super::error::ConnectionFault;
use super::held_ping::HoldPingAcknowledgement;
use super::yielding::YieldAfterRead;
use super::{Error, RemoteBackend};
use crate::grpc::limits::{CONNECTION_WINDOW, MAX_HEADER_LIST, STREAM_WINDOW};
use crate::uds::{FilteredStream, SocketStream};

type BufferedStream = BufReader<FilteredStream<SocketStream, YieldAfterRead>>;
type RuntimeConnection = Connection<FilteredStream<BufferedStream, HoldPingAcknowledgement>, Bytes>;

/// How often and how long to wait while the listener's backlog is full.
const BACKLOG_TRIES: u32 = 20;
const BACKLOG_WAIT: Duration = Duration::from_millis(25);

/// Bytes read from a runtime at once: 8 full frames. h2 alone reads 8 KiB, and the rest of the frame with a second call: two system calls, two
/// allocations and a copy for each of the 64 frames of a list of 1 MB.
const READ_BUFFER: usize = 128 << 10;

/// The settings of a connection to a runtime.
fn settings() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // The runtime is trusted: small events may wait for their reader, and frames of streams cancelled long ago are no
        // attack.
        .data_frame_budget(usize::MAX)
        .max_local_error_reset_streams(None);
    builder
}

/// Connects to a unix socket, without delay: the kernel never queues such a connect, it refuses when the listener's backlog
/// is full, and that is retried for half a second.
///
/// # Errors
/// Those of socket(2) and connect(2).
pub async fn open(path: &Path) -> io::Result<UnixStream> {
    let address = UnixAddr::new(path)?;
    let mut tries = 0;
    loop {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => return Ok(fd.into()),
            Err(nix::Error::EAGAIN) if tries < BACKLOG_TRIES => {
                tries += 1;
                tokio::time::sleep(BACKLOG_WAIT).await;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

impl RemoteBackend {
    /// Opens an HTTP/2 connection. Requests may be sent on it at once.
    ///
    /// # Errors
    /// [`ConnectionFault::Connect`].
    pub async fn connect(&self) -> Result<SendRequest<Bytes>, Error> {
        let (sender, connection) = self.handshake().await?;
        // Each call on the connection sees the error itself.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error.message = %error, "backend connection ended");
            }
        });
        Ok(sender)
    }

    /// Opens an HTTP/2 connection whose future the caller must poll.
    ///
    /// # Errors
    /// As [`RemoteBackend::connect`].
    pub(crate) async fn handshake(&self) -> Result<(SendRequest<Bytes>, RuntimeConnection), Error> {
        self.open_connection()
            .await
            .map_err(|error| self.error(ConnectionFault::Connect(error)))
    }

    async fn open_connection(&self) -> io::Result<(SendRequest<Bytes>, RuntimeConnection)> {
        let stream = open(&self.path).await?;
        if let Ok(peer) = getsockopt(&stream, PeerCredentials) {
            self.health.set_pid(peer.pid());
        }
        let stream = FilteredStream::new(SocketStream::new(stream)?, YieldAfterRead::default());
        let stream = BufReader::with_capacity(READ_BUFFER, stream);
        let stream = FilteredStream::new(stream, HoldPingAcknowledgement::default());
        // A handshake only writes; the runtime's SETTINGS are read later.
        settings().handshake(stream).await.map_err(|error| {
            let source = error.into_io();
            source.unwrap_or_else(|| io::ErrorKind::Other.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_missing_socket_fails_immediately() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("no.sock");
        let error = open(&path).await.expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);

        let remote = RemoteBackend::new("containerd".into(), path.clone(), Arc::default());
        let error = remote.connect().await.expect_err("no socket");
        assert_eq!(
            error.to_string(),
            format!(
                "backend containerd at unix://{}: No such file or directory (os error 2)",
                path.display()
            )
        );
    }
}
