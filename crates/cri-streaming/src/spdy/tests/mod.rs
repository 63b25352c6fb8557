//! The server's end against a peer that writes frames by hand, in the order of Go clients.

mod bulk;
mod codec;
mod crowd;
mod ends;
mod flow_control;
mod malformed;
mod peer;
mod random;
mod streams;

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use self::peer::Peer;
use super::{ConnectionEnd, SpdyConnection, SpdyLimits, SpdyStreams};

const HOUR: Duration = Duration::from_secs(3600);

/// Timeout of every test.
async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), future)
        .await
        .unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// A connection over a pipe small enough to fill up.
fn connect(limits: SpdyLimits) -> (Peer<DuplexStream>, SpdyStreams, JoinHandle<ConnectionEnd>) {
    let (near, far) = tokio::io::duplex(40_000);
    let (streams, driver) = SpdyConnection::server(far, limits);
    (Peer::new(near), streams, tokio::spawn(driver))
}

fn session() -> (Peer<DuplexStream>, SpdyStreams, JoinHandle<ConnectionEnd>) {
    connect(SpdyLimits::session(HOUR))
}

/// Waits for the result of a driver.
async fn end(driver: JoinHandle<ConnectionEnd>) -> ConnectionEnd {
    soon("the end", driver).await.expect("no panic")
}

/// Data in which displaced bytes are detected.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i) as u8).collect()
}
