//! Common parts of the clients of both kinds of sessions.

use std::future::Future;
use std::io;
use std::time::Duration;

use cri_streaming::client::{UpgradeError, split_url};
use tokio::net::TcpStream;

/// Timeout of a read or write: a session that stalls ends the run.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Connects to the server of a URL.
///
/// # Errors
/// If the connection fails.
pub(super) async fn connect(url: &str) -> io::Result<TcpStream> {
    let (host, _) = split_url(url).map_err(refused)?;
    let tcp = TcpStream::connect(host).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Waits for one step of a session.
///
/// # Errors
/// If it fails or times out.
pub(super) async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Converts an error into that of a session.
pub(super) fn refused(error: UpgradeError) -> io::Error {
    io::Error::other(error)
}
