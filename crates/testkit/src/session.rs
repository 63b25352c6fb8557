//! Clients of exec and port-forward sessions. Each step has a time limit.

use std::future::Future;
use std::io;

use bytes::Bytes;
use cri_streaming::client::{
    SpdyFrame, SpdyReceiver, SpdySender, UpgradeError, UpgradeRequest, split_url,
};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Connects to the server of a URL.
///
/// # Errors
/// If the connection fails.
pub async fn connect(url: &str) -> io::Result<TcpStream> {
    let (host, _) = split_url(url).map_err(refused)?;
    let tcp = TcpStream::connect(host).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Waits for one step of a session.
///
/// # Errors
/// If it fails, or takes longer than [`crate::PATIENCE`].
pub async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(crate::PATIENCE, step).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Converts an error into that of a session.
pub fn refused(error: UpgradeError) -> io::Error {
    io::Error::other(error)
}

/// A connection to a port of a pod through the port-forward protocol over SPDY (`portforward.k8s.io`).
pub struct ForwardedPort {
    sender: SpdySender<OwnedWriteHalf>,
    receiver: SpdyReceiver<OwnedReadHalf>,
    data: u32,
    errors: u32,
}

impl ForwardedPort {
    /// Opens a connection to the port.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn connect(url: &str, port: &str) -> io::Result<Self> {
        let (host, path) = split_url(url).map_err(refused)?;
        let mut tcp = connect(url).await?;
        let request = UpgradeRequest::spdy(host, path, &["portforward.k8s.io"]);
        request.send(&mut tcp).await.map_err(refused)?;
        let (read, write) = tcp.into_split();
        let (mut sender, mut receiver) = (SpdySender::new(write)?, SpdyReceiver::new(read));
        let mut ids = [0; 2];
        for (id, kind) in ids.iter_mut().zip(["error", "data"]) {
            let headers = [("streamtype", kind), ("port", port), ("requestid", "0")];
            *id = sender.open(&headers).await?;
            match receiver.next().await? {
                Some(SpdyFrame::Reply { stream }) if stream == *id => {}
                _ => return Err(io::Error::other("a stream was not accepted")),
            }
            if kind == "error" {
                sender.data(*id, &[], true).await?;
            }
        }
        let [errors, data] = ids;
        Ok(Self {
            sender,
            receiver,
            data,
            errors,
        })
    }

    /// Sends bytes to the port.
    ///
    /// # Errors
    /// If the session is broken.
    pub async fn send(&mut self, bytes: &[u8], is_last: bool) -> io::Result<()> {
        in_time(self.sender.data(self.data, bytes, is_last)).await
    }

    /// The next bytes from the port, and whether they are the last.
    ///
    /// # Errors
    /// If the session is broken, or the server tells an error.
    pub async fn next(&mut self) -> io::Result<(Bytes, bool)> {
        let frame = in_time(self.receiver.next()).await?;
        Ok(match frame.ok_or(io::ErrorKind::UnexpectedEof)? {
            SpdyFrame::Data {
                stream,
                bytes,
                is_last,
            } if stream == self.data => (bytes, is_last),
            SpdyFrame::Data { stream, bytes, .. } if stream == self.errors && !bytes.is_empty() => {
                let said = String::from_utf8_lossy(&bytes);
                return Err(io::Error::other(format!("error of the server: {said}")));
            }
            SpdyFrame::Reset { stream } if stream == self.data => (Bytes::new(), true),
            SpdyFrame::GoAway => return Err(io::Error::other("the server closed the session")),
            _ => (Bytes::new(), false),
        })
    }
}
