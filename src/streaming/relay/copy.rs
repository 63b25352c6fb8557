//! Bytes both ways, as they are.

use std::future::pending;
use std::io;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::super::observe::Direction;
use super::super::session::Meter;
use super::watch::Watch;

/// What is held of each direction of a session.
const BUFFER: usize = 32 << 10;

/// Silence after which the second half of a connection is closed whose first half is closed already.
const LINGER: Duration = Duration::from_secs(10);

/// Who was the first to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The client, in good order.
    Client,
    /// The client broke the connection off.
    ClientBroke,
    /// The upstream, in good order.
    Upstream,
    /// The upstream broke the connection off.
    UpstreamBroke,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no more to read; the other side has been told.
    Done,
    /// The side that is read from broke.
    Read,
    /// The side that is written to broke.
    Write,
}

/// Copies until both sides are done, or one is and the other is silent. `watch` sees what goes to the client.
pub(super) async fn both(
    client: &mut TcpStream,
    upstream: &mut TcpStream,
    meter: &Meter,
    watch: &mut Watch,
) -> First {
    let (client_read, client_write) = client.split();
    let (upstream_read, upstream_write) = upstream.split();
    let moved = AtomicU64::new(0);
    let note = |direction, n: usize| {
        meter.count(direction, n);
        moved.fetch_add(n as u64, Ordering::Relaxed);
    };
    let mut inward = pin!(pump(
        client_read,
        upstream_write,
        |_| (),
        |n| note(Direction::In, n),
        Some(&moved),
    ));
    let mut outward = pin!(pump(
        upstream_read,
        client_write,
        // Before it is sent: what the client does then is an answer to it.
        |bytes| watch.see(bytes),
        |n| note(Direction::Out, n),
        // What it has said before it broke is still to be had, however slowly the client reads.
        None,
    ));
    tokio::select! {
        end = &mut inward => match end {
            End::Read => First::ClientBroke,
            End::Done => {
                silence(&moved, outward).await;
                First::Client
            }
            // What the upstream has said before it closed is still to be had.
            End::Write => {
                silence(&moved, outward).await;
                First::Upstream
            }
        },
        end = &mut outward => match end {
            End::Read => First::UpstreamBroke,
            End::Write => First::ClientBroke,
            End::Done => {
                silence(&moved, inward).await;
                First::Upstream
            }
        },
    }
}

/// Waits for the rest, as long as something moves.
async fn silence(moved: &AtomicU64, rest: impl Future<Output = End>) {
    let mut rest = pin!(rest);
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::select! {
            _ = &mut rest => return,
            () = tokio::time::sleep(LINGER) => {}
        }
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// Returns when the connection is broken, which is seen also while nobody reads it, and then nothing moves.
async fn given_up(from: &ReadHalf<'_>, moved: Option<&AtomicU64>) {
    if let Some(moved) = moved
        && from.ready(Interest::ERROR).await.is_ok()
    {
        silence(moved, pending()).await;
    } else {
        // It is seen when it is read.
        pending().await
    }
}

/// Copies one direction. `see` is shown what is to be sent, and `sent` is told of it afterwards. With what has `moved`, a
/// receiver that takes nothing is given up some time after the sender has broken off.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut see: impl FnMut(&[u8]),
    sent: impl Fn(usize),
    moved: Option<&AtomicU64>,
) -> End {
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return End::Read,
        };
        see(&buffer[..n]);
        tokio::select! {
            biased;
            written = to.write_all(&buffer[..n]) => match written {
                Ok(()) => sent(n),
                Err(_) => return End::Write,
            },
            () = given_up(&from, moved) => return End::Read,
        }
    }
    // Whoever has gone already need not be told.
    let _ = to.shutdown().await;
    End::Done
}
