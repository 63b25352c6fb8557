//! Copies between a client's stream and a connection into a pod, each direction for itself.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio_util::sync::CancellationToken;

use crate::streaming::observe::Direction;
use crate::streaming::session::Meter;

/// How long one direction may be silent once the other has ended. Long enough for somebody who sends a request, ends his
/// side and waits for the answer; the reference servers wait one second, and lose it.
const HALF_OPEN: Duration = Duration::from_secs(60);

/// Bytes that are read at once.
const BUFFER: usize = 32 << 10;

/// How a direction came to its end.
enum Over {
    /// The sender had no more.
    End,
    /// The sender broke off.
    ReadFailed(io::Error),
    /// The receiver takes no more.
    WriteFailed(io::Error),
}

impl Over {
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
struct Way {
    /// How often something arrived.
    moved: AtomicU64,
    /// It waits for its receiver, not for its sender.
    is_writing: AtomicBool,
}

impl Way {
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
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut pod_read, pod_write) = pod.into_split();
    let (there, back) = (&Way::default(), &Way::default());
    // A reset is told to whoever asks first, and to the reader it then looks like an end.
    let was_reset = &AtomicBool::new(false);
    // Each owns its halves: what the client still sends after its direction is over is then thrown away by whoever reads
    // the connection, and holds up no other stream.
    let inward = async move {
        let mut inlet = Inlet::new(pod_write);
        let count = |n| meter.count(Direction::In, n);
        let over = pump(&mut client_read, &mut inlet, there, count).await;
        match over {
            Over::End if broke_off(&client_read) => {
                inlet.tear();
                Over::ReadFailed(io::ErrorKind::ConnectionAborted.into())
            }
            Over::ReadFailed(error) => {
                inlet.tear();
                Over::ReadFailed(error)
            }
            Over::End => {
                let _ = inlet.shutdown().await;
                over
            }
            Over::WriteFailed(ref error) => {
                let is_reset = error.kind() == io::ErrorKind::ConnectionReset;
                was_reset.store(is_reset, Ordering::Relaxed);
                let _ = inlet.shutdown().await;
                over
            }
        }
    };
    let outward = async move {
        let count = |n| meter.count(Direction::Out, n);
        match pump(&mut pod_read, &mut client_write, back, count).await {
            Over::End if was_reset.load(Ordering::Relaxed) => {
                Over::ReadFailed(io::ErrorKind::ConnectionReset.into())
            }
            Over::ReadFailed(error) => Over::ReadFailed(error),
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
            Over::ReadFailed(_) => Ok(()),
            // The pod may have ended its side of reading and still send.
            Over::End | Over::WriteFailed(_) => tokio::select! {
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

async fn pump<R, W>(from: &mut R, to: &mut W, way: &Way, moved: impl Fn(usize)) -> Over
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) => return Over::End,
            Ok(n) => n,
            Err(error) => return Over::ReadFailed(error),
        };
        way.is_writing.store(true, Ordering::Relaxed);
        if let Err(error) = to.write_all(&buffer[..n]).await {
            return Over::WriteFailed(error);
        }
        way.is_writing.store(false, Ordering::Relaxed);
        way.moved.fetch_add(1, Ordering::Relaxed);
        moved(n);
    }
}

/// The way into the pod. Dropped, it ends with a FIN, like the connections of a process that has ended; but if something
/// that the client has sent does not arrive, the whole connection ends with a reset (RFC 9293 section 3.5.2).
struct Inlet {
    half: Option<OwnedWriteHalf>,
    /// What was handed in last was not all taken.
    is_torn: bool,
}

impl Inlet {
    fn new(half: OwnedWriteHalf) -> Self {
        Self {
            half: Some(half),
            is_torn: false,
        }
    }

    /// There should have been more.
    fn tear(mut self) {
        self.is_torn = true;
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.half {
            Some(half) => act(Pin::new(half)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        if let Some(half) = self.half.take_if(|_| self.is_torn) {
            // It fails only for one that has ended anyway.
            let _ended = half.as_ref().set_zero_linger();
            // With the last half it is closed; to drop this one would send a FIN before.
            half.forget();
        }
    }
}

impl AsyncWrite for Inlet {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.with(|half| half.poll_write(cx, buf));
        self.is_torn = match written {
            Poll::Pending => true,
            Poll::Ready(Ok(n)) => n < buf.len(),
            // By the pod itself.
            Poll::Ready(Err(_)) => false,
        };
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|half| half.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|half| half.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use crate::streaming::observe::{Kind, Observers, Transport};
    use crate::streaming::session::{About, Session};

    /// A stream of which we have thrown away something.
    struct Stalled;

    impl AsyncRead for Stalled {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }
    }

    fn meter() -> Arc<Meter> {
        let about = About {
            kind: Kind::PortForward,
            id: "s".into(),
            command: vec![],
            call: None,
        };
        Session::begin(about, Transport::Spdy, "p", &Observers(Arc::new([]))).meter()
    }

    /// A connection into a pod, and its end there.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let pod = TcpStream::connect(address).await.expect("connected");
        (pod, listener.accept().await.expect("accepted").0)
    }

    /// What the pod sees of an upload.
    async fn sees(upload: impl AsyncRead + Unpin, broke_off: bool) -> (Vec<u8>, io::Result<usize>) {
        let (pod, mut inside) = connection().await;
        let client = (upload, tokio::io::sink());
        let (meter, gone) = (meter(), CancellationToken::new());
        let work = async {
            let mut text = Vec::new();
            let end = inside.read_to_end(&mut text).await;
            drop(inside);
            (text, end)
        };
        let copied = copy(client, pod, &meter, |_| broke_off, &gone);
        tokio::join!(work, copied).0
    }

    #[tokio::test]
    async fn only_an_end_that_was_said_is_an_end() {
        let (text, end) = sees(&b"all"[..], false).await;
        assert_eq!((&text[..], end.expect("the end")), (&b"all"[..], 3));
        for (text, end) in [
            sees(&b"all"[..], true).await,
            sees((&b"all"[..]).chain(Stalled), false).await,
        ] {
            assert_eq!(text, b"all");
            let error = end.expect_err("half of it");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ended_its_half_may_read_as_slowly_as_it_likes() {
        const LENGTH: usize = 100_000;
        let (pod, mut inside) = connection().await;
        let (output, mut client) = tokio::io::duplex(1000);
        let (meter, gone) = (meter(), CancellationToken::new());
        let says = async {
            inside.write_all(&[b'x'; LENGTH]).await.expect("written");
            inside.shutdown().await.expect("shut");
        };
        let reads = async {
            let mut all = Vec::new();
            for _ in 0..3 {
                tokio::time::sleep(HALF_OPEN * 3).await;
                let mut some = [0; 5000];
                client.read_exact(&mut some).await.expect("more");
                all.extend(some);
            }
            tokio::time::sleep(HALF_OPEN * 3).await;
            client.read_to_end(&mut all).await.expect("the rest");
            all.len()
        };
        let halves = (tokio::io::empty(), output);
        let copied = copy(halves, pod, &meter, |_| false, &gone);
        assert_eq!(tokio::join!(says, reads, copied).1, LENGTH);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_says_nothing_is_not_waited_for_for_ever() {
        let (pod, _inside) = connection().await;
        let (meter, gone) = (meter(), CancellationToken::new());
        let began = tokio::time::Instant::now();
        let halves = (tokio::io::empty(), tokio::io::sink());
        let copied = copy(halves, pod, &meter, |_| false, &gone).await;
        copied.expect("not broken off");
        assert_eq!(began.elapsed(), HALF_OPEN);
    }

    #[tokio::test]
    async fn a_reset_that_the_upload_hears_of_first_is_no_end_of_the_answer() {
        // Which direction looks first is left to chance.
        for _ in 0..20 {
            let (pod, inside) = connection().await;
            inside.set_zero_linger().expect("set");
            drop(inside);
            let halves = (&b"more"[..], tokio::io::sink());
            let (meter, gone) = (meter(), CancellationToken::new());
            let error = copy(halves, pod, &meter, |_| false, &gone).await;
            let error = error.expect_err("broken off");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }
}
