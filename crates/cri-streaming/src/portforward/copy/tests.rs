//! Connections into a pod whose ends misbehave.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Sink, sink};
use tokio::net::TcpListener;

use super::*;
use crate::observe::{SessionKind, SessionObservers, Transport};
use crate::session::{ObservedSession, SessionInfo};

/// A stream that has lost data.
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

fn meter() -> Arc<SessionMeter> {
    let info = SessionInfo {
        kind: SessionKind::PortForward,
        id: "s".into(),
        command: vec![],
        extensions: http::Extensions::new(),
    };
    ObservedSession::begin(info, Transport::Spdy, "p", &SessionObservers(Arc::new([]))).meter()
}

/// A connection into a pod, and the pod's end of it.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let pod = TcpStream::connect(address).await.expect("connected");
    (pod, listener.accept().await.expect("accepted").0)
}

impl AsyncBufRead for Stalled {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn consume(self: Pin<&mut Self>, _: usize) {}
}

impl ClientWriter for Sink {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(READ_BUFFER_LEN))
    }
}

impl ClientWriter for DuplexStream {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(READ_BUFFER_LEN))
    }
}

/// Returns what the pod receives of an upload.
async fn sees(upload: impl AsyncBufRead + Unpin, broke_off: bool) -> (Vec<u8>, io::Result<usize>) {
    let (pod, mut inside) = connection().await;
    let client = (upload, sink());
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
async fn only_an_explicit_end_is_passed_on() {
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

#[tokio::test]
async fn a_client_that_ended_its_half_may_read_slowly() {
    const LENGTH: usize = 100_000;
    let (pod, mut inside) = connection().await;
    let (output, mut client) = tokio::io::duplex(1000);
    let (meter, gone) = (meter(), CancellationToken::new());
    let says = tokio::spawn(async move {
        inside.write_all(&[b'x'; LENGTH]).await.expect("written");
        inside.shutdown().await.expect("shut");
        inside
    });
    // The bytes have arrived before the read: paused time does not wait for the kernel.
    while pod.peek(&mut [0; READ_BUFFER_LEN]).await.expect("open") < READ_BUFFER_LEN {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reads = async {
        let mut all = Vec::new();
        tokio::time::pause();
        for _ in 0..3 {
            tokio::time::sleep(HALF_OPEN_TIMEOUT * 3).await;
            let mut some = [0; 5000];
            client.read_exact(&mut some).await.expect("more");
            all.extend(some);
        }
        tokio::time::sleep(HALF_OPEN_TIMEOUT * 3).await;
        tokio::time::resume();
        client.read_to_end(&mut all).await.expect("the rest");
        all.len()
    };
    let halves = (tokio::io::empty(), output);
    let copied = copy(halves, pod, &meter, |_| false, &gone);
    let (said, read, _) = tokio::join!(says, reads, copied);
    said.expect("no panic");
    assert_eq!(read, LENGTH);
}

#[tokio::test(start_paused = true)]
async fn a_silent_pod_is_disconnected_after_a_timeout() {
    let (pod, _inside) = connection().await;
    let (meter, gone) = (meter(), CancellationToken::new());
    let began = tokio::time::Instant::now();
    let halves = (tokio::io::empty(), sink());
    let copied = copy(halves, pod, &meter, |_| false, &gone).await;
    copied.expect("not broken off");
    assert_eq!(began.elapsed(), HALF_OPEN_TIMEOUT);
}

#[tokio::test]
async fn a_reset_seen_by_the_upload_does_not_end_the_download_cleanly() {
    // The order in which the directions are polled is random.
    for _ in 0..20 {
        let (pod, inside) = connection().await;
        inside.set_zero_linger().expect("set");
        drop(inside);
        let halves = (&b"more"[..], sink());
        let (meter, gone) = (meter(), CancellationToken::new());
        let error = copy(halves, pod, &meter, |_| false, &gone).await;
        let error = error.expect_err("broken off");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

/// A client that reads everything at once, or a little at a time.
struct Sips(Sink);

impl AsyncWrite for Sips {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl ClientWriter for Sips {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(100))
    }
}

#[test]
fn a_pod_that_always_sends_does_not_starve_others() {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    // A blocked thread cannot be awaited.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let (pod, mut inside) = connection().await;
            inside.write_all(&[b'x'; 60_000]).await.expect("written");
            drop(inside);
            let (meter, gone) = (meter(), CancellationToken::new());
            let halves = (tokio::io::empty(), Sips(sink()));
            let copied = copy(halves, pod, &meter, |_| false, &gone).await;
            copied.expect("not broken off");
            tell.send(meter.bytes().1).expect("awaited");
        });
    });
    let bytes = told.recv_timeout(Duration::from_secs(60));
    assert_eq!(bytes.expect("an end"), 60_000);
}
