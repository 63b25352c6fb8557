//! Copies between a client's stream and a connection into a pod, each direction for itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::streaming::observe::Direction;
use crate::streaming::session::Meter;

/// How long one direction may be silent once the other has ended. Long enough for somebody who sends a request, ends his
/// side and waits for the answer; the reference servers wait one second, and lose it.
pub(super) const HALF_OPEN: Duration = Duration::from_secs(60);

/// Bytes that are read at once.
const BUFFER: usize = 32 << 10;

/// How a direction came to its end.
enum Over {
    /// The sender had no more.
    End,
    /// The sender broke off.
    ReadFailed,
    /// The receiver takes no more.
    WriteFailed,
}

/// Copies both ways until both have ended, one failed, or one has ended and the other was silent for `half_open`. Each
/// end is passed on as one: `shutdown` of the other side's writer.
pub(super) async fn copy<R, W>(
    mut client_read: R,
    mut client_write: W,
    pod: TcpStream,
    meter: &Meter,
    half_open: Duration,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut pod_read, mut pod_write) = pod.into_split();
    let moved = &AtomicU64::new(0);
    // Each owns its halves: what the client still sends after its direction is over is then thrown away by whoever reads
    // the connection, and holds up no other stream.
    let inward = async move {
        let over = pump(&mut client_read, &mut pod_write, |n| {
            moved.fetch_add(1, Ordering::Relaxed);
            meter.count(Direction::In, n);
        })
        .await;
        let _ = pod_write.shutdown().await;
        over
    };
    let outward = async move {
        let over = pump(&mut pod_read, &mut client_write, |n| {
            moved.fetch_add(1, Ordering::Relaxed);
            meter.count(Direction::Out, n);
        })
        .await;
        let _ = client_write.shutdown().await;
        over
    };
    tokio::pin!(inward, outward);
    let silent = async {
        loop {
            let before = moved.load(Ordering::Relaxed);
            tokio::time::sleep(half_open).await;
            if moved.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    tokio::select! {
        over = &mut inward => match over {
            // The client has gone, and nobody is there for what may come.
            Over::ReadFailed => {}
            // The pod may have ended its side of reading and still send.
            Over::End | Over::WriteFailed => tokio::select! {
                _ = outward => {}
                () = silent => {}
            },
        },
        over = &mut outward => match over {
            Over::WriteFailed | Over::ReadFailed => {}
            Over::End => tokio::select! {
                _ = inward => {}
                () = silent => {}
            },
        },
    }
}

async fn pump<R, W>(from: &mut R, to: &mut W, mut moved: impl FnMut(usize)) -> Over
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) => return Over::End,
            Ok(n) => n,
            Err(_) => return Over::ReadFailed,
        };
        if to.write_all(&buffer[..n]).await.is_err() {
            return Over::WriteFailed;
        }
        moved(n);
    }
}
