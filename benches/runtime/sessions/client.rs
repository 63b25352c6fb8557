//! What both kinds of sessions need of a client.

use std::future::Future;
use std::io;
use std::time::Duration;

use cri_streaming::client::{UpgradeError, split_url};
use tokio::net::TcpStream;

/// No read and no write takes as long: a session that stalls ends the run.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Connects to the server of a URL.
///
/// # Errors
/// When there is none.
pub(super) async fn connect(url: &str) -> io::Result<TcpStream> {
    let (host, _) = split_url(url).map_err(refused)?;
    let tcp = TcpStream::connect(host).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Waits for one step of a session.
///
/// # Errors
/// When it fails or takes too long.
pub(super) async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// As the error of a session.
pub(super) fn refused(error: UpgradeError) -> io::Error {
    io::Error::other(error)
}
