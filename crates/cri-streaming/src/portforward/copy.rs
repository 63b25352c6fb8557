//! Copies between a client's stream and a connection into a pod, each direction for itself.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::consume_budget;
use tokio_util::sync::CancellationToken;

use super::client_writer::ClientWriter;
use super::pod_writer::PodWriter;
use crate::observe::Direction;
use crate::session::Meter;

/// How long one direction may be silent once the other has ended. Long enough for somebody who sends a request, ends his
/// side and waits for the answer; the reference servers wait one second, and lose it.
const HALF_OPEN: Duration = Duration::from_secs(60);

/// Bytes that are read of a pod at once.
const BUFFER: usize = 32 << 10;

/// How a direction came to its end.
enum CopyEnd {
    /// The sender had no more.
    End,
    /// The sender broke off.
    ReadFailed(io::Error),
    /// The receiver takes no more.
    WriteFailed(io::Error),
}

impl CopyEnd {
    /// An error if the sender broke off.
    fn into_result(self) -> io::Result<()> {
        match self {
            Self::ReadFailed(error) => Err(error),
            Self::End | Self::WriteFailed(_) => Ok(()),
        }
    }
}

/// What one direction does.
#[derive(Default)]
struct CopyProgress {
    /// How often something arrived.
    moved: AtomicU64,
    /// It waits for its receiver, not for its sender.
    is_writing: AtomicBool,
}

impl CopyProgress {
    /// So much arrived.
    fn count(&self, n: usize, moved: impl Fn(usize)) {
        self.is_writing.store(false, Ordering::Relaxed);
        self.moved.fetch_add(1, Ordering::Relaxed);
        moved(n);
    }

    /// Returns when the sender has said nothing for [`HALF_OPEN`]. The time that a receiver takes is not his silence: how
    /// long that may be is for the idle time of the session to say.
    async fn silent(&self) {
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            tokio::time::sleep(HALF_OPEN).await;
            let has_moved = self.moved.load(Ordering::Relaxed) != before;
            if !has_moved && !self.is_writing.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Copies both ways until both have ended, one broke off, or one has ended and the other was silent for [`HALF_OPEN`]. Each
/// end is passed on as one: `shutdown` of the other side's writer. What breaks off is no end, or half of something would be
/// taken for the whole: the pod sees a reset, and the client's writer is dropped without a shutdown. `broke_off` tells, of
/// a client from whom nothing more will come, whether he had said so.
///
/// Once the client has `gone`, only what it had sent is waited for.
///
/// # Errors
/// If the pod broke off.
pub(super) async fn copy<R, W>(
    (mut client_read, mut client_write): (R, W),
    pod: TcpStream,
    meter: &Meter,
    broke_off: impl Fn(&R) -> bool,
    gone: &CancellationToken,
) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: ClientWriter,
{
    let (mut pod_read, pod_write) = pod.into_split();
    let (there, back) = (&CopyProgress::default(), &CopyProgress::default());
    // A reset is told to whoever asks first, and to the reader it then looks like an end.
    let was_reset = &AtomicBool::new(false);
    // Each owns its halves: what the client still sends after its direction is over is then thrown away by whoever reads
    // the connection, and holds up no other stream.
    let inward = async move {
        let mut pod_writer = PodWriter::new(pod_write);
        let count = |n| meter.count(Direction::In, n);
        let over = upload(&mut client_read, &mut pod_writer, there, count).await;
        match over {
            CopyEnd::End if broke_off(&client_read) => {
                pod_writer.tear();
                CopyEnd::ReadFailed(io::ErrorKind::ConnectionAborted.into())
            }
            CopyEnd::ReadFailed(error) => {
                pod_writer.tear();
                CopyEnd::ReadFailed(error)
            }
            CopyEnd::End => {
                let _ = pod_writer.shutdown().await;
                over
            }
            CopyEnd::WriteFailed(ref error) => {
                let is_reset = error.kind() == io::ErrorKind::ConnectionReset;
                was_reset.store(is_reset, Ordering::Relaxed);
                let _ = pod_writer.shutdown().await;
                over
            }
        }
    };
    let outward = async move {
        let count = |n| meter.count(Direction::Out, n);
        match download(&mut pod_read, &mut client_write, back, count).await {
            CopyEnd::End if was_reset.load(Ordering::Relaxed) => {
                CopyEnd::ReadFailed(io::ErrorKind::ConnectionReset.into())
            }
            CopyEnd::ReadFailed(error) => CopyEnd::ReadFailed(error),
            over => {
                let _ = client_write.shutdown().await;
                over
            }
        }
    };
    tokio::pin!(inward, outward);
    tokio::select! {
        over = &mut inward => match over {
            // The client has gone, and nobody is there for what may come.
            CopyEnd::ReadFailed(_) => Ok(()),
            // The pod may have ended its side of reading and still send.
            CopyEnd::End | CopyEnd::WriteFailed(_) => tokio::select! {
                over = outward => over.into_result(),
                () = back.silent() => Ok(()),
                () = gone.cancelled() => Ok(()),
            },
        },
        over = &mut outward => {
            over.into_result()?;
            // A client that takes no more has sent what it has sent.
            tokio::select! {
                _ = inward => {}
                () = there.silent() => {}
            }
            Ok(())
        }
    }
}

/// Nothing of what the client sent is held here: what the pod does not take is counted where it lies.
async fn upload<R>(
    from: &mut R,
    to: &mut PodWriter,
    way: &CopyProgress,
    moved: impl Fn(usize),
) -> CopyEnd
where
    R: AsyncBufRead + Unpin,
{
    loop {
        let piece = match from.fill_buf().await {
            Ok([]) => return CopyEnd::End,
            Ok(piece) => piece,
            Err(error) => return CopyEnd::ReadFailed(error),
        };
        way.is_writing.store(true, Ordering::Relaxed);
        let n = match to.write(piece).await {
            Ok(0) => return CopyEnd::WriteFailed(io::ErrorKind::WriteZero.into()),
            Ok(n) => n,
            Err(error) => return CopyEnd::WriteFailed(error),
        };
        from.consume(n);
        way.count(n, &moved);
    }
}

/// Nothing of what the pod says is held here before it has come and there is room for it.
async fn download<W>(
    from: &mut OwnedReadHalf,
    to: &mut W,
    way: &CopyProgress,
    moved: impl Fn(usize),
) -> CopyEnd
where
    W: ClientWriter,
{
    loop {
        if let Err(error) = from.readable().await {
            return CopyEnd::ReadFailed(error);
        }
        way.is_writing.store(true, Ordering::Relaxed);
        let room = match poll_fn(|cx| to.poll_room(cx)).await {
            Ok(room) => room,
            Err(error) => return CopyEnd::WriteFailed(error),
        };
        let mut piece = Vec::with_capacity(room.min(BUFFER));
        match from.read_buf(&mut piece).now_or_never() {
            Some(Ok(0)) => return CopyEnd::End,
            Some(Ok(_)) => {}
            Some(Err(error)) => return CopyEnd::ReadFailed(error),
            // Nothing has come after all, or it is the turn of other tasks.
            None => {
                way.is_writing.store(false, Ordering::Relaxed);
                consume_budget().await;
                continue;
            }
        }
        if let Err(error) = to.write_all(&piece).await {
            return CopyEnd::WriteFailed(error);
        }
        way.count(piece.len(), &moved);
    }
}

#[cfg(test)]
mod tests;
