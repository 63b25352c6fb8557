//! Copies between a client's stream and a connection into a pod, independently in each direction.

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
use crate::session::SessionMeter;

/// How long one direction may be silent after the other has ended: enough for a client that sends a request, shuts down
/// its half and waits for the response. The reference servers wait one second, and lose the response.
const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Size of a read from the pod, in bytes.
const READ_BUFFER_LEN: usize = 32 << 10;

/// How a direction ended.
enum CopyEnd {
    /// The sender has ended its half.
    End,
    /// The sender's connection was reset or lost.
    ReadFailed(io::Error),
    /// The receiver accepts no more data.
    WriteFailed(io::Error),
}

impl CopyEnd {
    /// Returns an error if the sender's connection was reset.
    fn into_result(self) -> io::Result<()> {
        match self {
            Self::ReadFailed(error) => Err(error),
            Self::End | Self::WriteFailed(_) => Ok(()),
        }
    }
}

/// Progress of one direction.
#[derive(Default)]
struct CopyProgress {
    /// Number of reads that returned data.
    moved: AtomicU64,
    /// Set while the direction waits for its receiver, not for its sender.
    is_writing: AtomicBool,
}

impl CopyProgress {
    /// Counts received bytes.
    fn count(&self, n: usize, moved: impl Fn(usize)) {
        self.is_writing.store(false, Ordering::Relaxed);
        self.moved.fetch_add(1, Ordering::Relaxed);
        moved(n);
    }

    /// Returns once the sender has been silent for [`HALF_OPEN_TIMEOUT`]. Time spent waiting for the receiver does not count; the
    /// idle timeout of the session limits it.
    async fn silent(&self) {
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            tokio::time::sleep(HALF_OPEN_TIMEOUT).await;
            let has_moved = self.moved.load(Ordering::Relaxed) != before;
            if !has_moved && !self.is_writing.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Copies both directions until both have ended, one was reset, or one has ended and the other was silent for
/// [`HALF_OPEN_TIMEOUT`]. The end of one side is passed on with `shutdown` of the other side's writer. A reset is not passed on as
/// an end, because a truncated stream would look complete: the pod sees a reset, and the client's writer is dropped
/// without a shutdown. `broke_off` returns whether the client's stream ended without being closed by the client.
///
/// Once the client is `gone`, only data that it has already sent is waited for.
///
/// # Errors
/// If the pod reset the connection.
pub(super) async fn copy<R, W>(
    (mut client_read, client_write): (R, W),
    pod: TcpStream,
    meter: &SessionMeter,
    broke_off: impl Fn(&R) -> bool,
    gone: &CancellationToken,
) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: ClientWriter,
{
    let (pod_read, pod_write) = pod.into_split();
    let (there, back) = (&CopyProgress::default(), &CopyProgress::default());
    // A reset is reported to the first caller only; the reader then sees an end of file.
    let was_reset = &AtomicBool::new(false);
    // Each direction owns its halves. Once it has ended, further input of the client is discarded by the task that reads
    // the connection, and blocks no other stream.
    let inward = async move {
        let mut pod_writer = PodWriter::new(pod_write);
        let over = upload(&mut client_read, &mut pod_writer, there, |n| {
            meter.count(Direction::In, n);
        })
        .await;
        let is_broken_off = broke_off(&client_read);
        end_pod(pod_writer, over, is_broken_off, was_reset).await
    };
    let outward = copy_out(
        pod_read,
        client_write,
        back,
        |n| meter.count(Direction::Out, n),
        was_reset,
    );
    tokio::pin!(inward, outward);
    tokio::select! {
        over = &mut inward => match over {
            // The client has disconnected, so output has no receiver.
            CopyEnd::ReadFailed(_) => Ok(()),
            // The pod may have shut down its reading half and still send.
            CopyEnd::End | CopyEnd::WriteFailed(_) => tokio::select! {
                over = outward => over.into_result(),
                () = back.silent() => Ok(()),
                () = gone.cancelled() => Ok(()),
            },
        },
        over = &mut outward => {
            over.into_result()?;
            // A client that no longer reads may still have data in flight to the pod.
            tokio::select! {
                _ = inward => {}
                () = there.silent() => {}
            }
            Ok(())
        }
    }
}

/// Ends the pod's stream in the same way as the client's stream: a stream that was broken off is reset.
async fn end_pod(
    mut pod: PodWriter,
    over: CopyEnd,
    is_broken_off: bool,
    was_reset: &AtomicBool,
) -> CopyEnd {
    match over {
        CopyEnd::End if is_broken_off => {
            pod.tear();
            CopyEnd::ReadFailed(io::ErrorKind::ConnectionAborted.into())
        }
        CopyEnd::ReadFailed(error) => {
            pod.tear();
            CopyEnd::ReadFailed(error)
        }
        CopyEnd::End => {
            let _ = pod.shutdown().await;
            over
        }
        CopyEnd::WriteFailed(ref error) => {
            let is_reset = error.kind() == io::ErrorKind::ConnectionReset;
            was_reset.store(is_reset, Ordering::Relaxed);
            let _ = pod.shutdown().await;
            over
        }
    }
}

/// Copies from the pod to the client, and ends the client's stream unless the pod's was reset.
async fn copy_out<W>(
    mut pod: OwnedReadHalf,
    mut client: W,
    way: &CopyProgress,
    moved: impl Fn(usize),
    was_reset: &AtomicBool,
) -> CopyEnd
where
    W: ClientWriter,
{
    match download(&mut pod, &mut client, way, moved).await {
        CopyEnd::End if was_reset.load(Ordering::Relaxed) => {
            CopyEnd::ReadFailed(io::ErrorKind::ConnectionReset.into())
        }
        CopyEnd::ReadFailed(error) => CopyEnd::ReadFailed(error),
        over => {
            let _ = client.shutdown().await;
            over
        }
    }
}

/// Client data is not buffered here: what the pod does not read is counted in the queue it came from.
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

/// Pod data is not buffered here: it is read only when it has arrived and the client has capacity.
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
        let mut piece = Vec::with_capacity(room.min(READ_BUFFER_LEN));
        match from.read_buf(&mut piece).now_or_never() {
            Some(Ok(0)) => return CopyEnd::End,
            Some(Ok(_)) => {}
            Some(Err(error)) => return CopyEnd::ReadFailed(error),
            // Nothing had arrived after all, or the task must yield.
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
