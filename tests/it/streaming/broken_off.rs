//! Interrupted uploads into a pod: the pod must not take a partial upload for a complete one, or vice versa.

use std::io::ErrorKind;

use cri_streaming::SessionOutcome;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{QUIET, open};
use super::forward::{direct, tunnelled};
use super::http::websocket;
use super::server::{Fixture, settings};
use super::spdy::Spdy;
use super::websocket::{WebSocket, frame};
use crate::prelude::*;

/// The data sent before the interruption.
const PART: &[u8] = b"the first half";

/// What a pod received: bytes, and the error if the connection was not closed properly.
type Saw = (Vec<u8>, Option<ErrorKind>);

/// A pod that reads one connection when told to.
struct Pod {
    port: u16,
    begin: Option<oneshot::Sender<()>>,
    /// Fires when all of [`PART`] has arrived.
    there: Option<oneshot::Receiver<()>>,
    saw: JoinHandle<Saw>,
}

impl Pod {
    async fn that_waits() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let (begin, begun) = oneshot::channel();
        let (tell, there) = oneshot::channel();
        let saw = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.expect("accepted");
            begun.await.expect("told");
            let (mut all, mut tell) = (Vec::new(), Some(tell));
            loop {
                match tcp.read_buf(&mut all).await {
                    Ok(0) => return (all, None),
                    Ok(_) => {
                        if let Some(tell) = tell.take_if(|_| all.len() >= PART.len()) {
                            let _unreceived = tell.send(());
                        }
                    }
                    Err(error) => return (all, Some(error.kind())),
                }
            }
        });
        Self {
            port,
            begin: Some(begin),
            there: Some(there),
            saw,
        }
    }

    async fn that_reads() -> Self {
        let mut pod = Self::that_waits().await;
        pod.begin();
        pod
    }

    fn begin(&mut self) {
        self.begin
            .take()
            .expect("not told yet")
            .send(())
            .expect("the pod waits");
    }

    /// Waits until the first part has arrived.
    async fn has_a_part(&mut self) {
        let there = self.there.take().expect("once");
        soon("the first part", there).await.expect("no panic");
    }

    async fn saw(self) -> Saw {
        soon("the end of the pod's connection", self.saw)
            .await
            .expect("no panic")
    }

    async fn saw_a_whole(self) {
        assert_eq!(self.saw().await, (PART.to_vec(), None));
    }

    async fn saw_a_break(self) {
        let broken = Some(ErrorKind::ConnectionReset);
        assert_eq!(self.saw().await, (PART.to_vec(), broken));
    }
}

/// Sends the first part, and waits until the pod has it.
async fn begin<T>(spdy: &mut Spdy<T>, pod: &mut Pod) -> u32
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (_, data) = open(spdy, 0, pod.port).await;
    spdy.send(data, PART, false).await;
    pod.has_a_part().await;
    data
}

/// Opens a WebSocket with channels.
async fn channels(fixture: &Fixture, port: u16) -> WebSocket<TcpStream> {
    let url = fixture.forward("pod", &[port]);
    websocket(&url, "v4.channel.k8s.io").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_is_a_reset() {
    let fixture = Fixture::start().await;
    let mut pod = Pod::that_reads().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    begin(&mut spdy, &mut pod).await;
    drop(spdy);
    pod.saw_a_break().await;
    fixture.ends(1).await;

    let mut pod = Pod::that_reads().await;
    let mut spdy = tunnelled(&fixture.forward("pod", &[])).await;
    begin(&mut spdy, &mut pod).await;
    drop(spdy);
    pod.saw_a_break().await;
    fixture.ends(2).await;

    let mut pod = Pod::that_reads().await;
    let mut socket = channels(&fixture, pod.port).await;
    socket.send(0, PART).await;
    pod.has_a_part().await;
    drop(socket);
    pod.saw_a_break().await;

    let outcomes: Vec<_> = fixture.ends(3).await.iter().map(|e| e.outcome).collect();
    let gone = SessionOutcome::ClientGone;
    assert_eq!(outcomes, [SessionOutcome::Done, SessionOutcome::Done, gone]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_by_the_client_is_a_proper_end() {
    let fixture = Fixture::start().await;
    // The client closes its half of the stream, whatever it does afterwards.
    let mut pod = Pod::that_reads().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let data = begin(&mut spdy, &mut pod).await;
    spdy.send(data, b"", true).await;
    spdy.reset(data).await;
    drop(spdy);
    pod.saw_a_whole().await;

    // The client resets the stream: some do so when they need no more of the response.
    let mut pod = Pod::that_reads().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let data = begin(&mut spdy, &mut pod).await;
    spdy.reset(data).await;
    pod.saw_a_whole().await;
    drop(spdy);

    // The client closes the connection with GOAWAY.
    let mut pod = Pod::that_reads().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    begin(&mut spdy, &mut pod).await;
    spdy.raw(&[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0])
        .await;
    drop(spdy);
    pod.saw_a_whole().await;

    // With channels, closing the connection is the only end.
    let mut pod = Pod::that_reads().await;
    let mut socket = channels(&fixture, pod.port).await;
    socket.send(0, PART).await;
    pod.has_a_part().await;
    socket.close().await;
    pod.saw_a_whole().await;
    assert_eq!(socket.closed().await, 1000);

    // An invalid frame afterwards does not make earlier data count as broken off.
    let mut pod = Pod::that_reads().await;
    let mut socket = channels(&fixture, pod.port).await;
    socket.send(0, PART).await;
    pod.has_a_part().await;
    socket.raw(&frame(0x83, b"")).await;
    pod.saw_a_whole().await;
    assert_eq!(socket.closed().await, 1002);
    fixture.ends(5).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_before_the_close_of_channels_arrives() {
    let fixture = Fixture::start().await;
    let mut pod = Pod::that_waits().await;
    let mut socket = channels(&fixture, pod.port).await;
    let (sent, enough) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let (count, stop) = (Arc::clone(&sent), enough.clone());
    let sending = tokio::spawn(async move {
        let piece = [b'x'; 30_000];
        while !stop.is_cancelled() {
            socket.send(0, &piece).await;
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
        socket.close().await;
        socket
    });
    let so_far = || Some(sent.load(Ordering::SeqCst));
    until_still("the connection to block", so_far).await;
    enough.cancel();
    pod.begin();
    let (all, end) = pod.saw().await;
    assert_eq!((all.len(), end), (sent.load(Ordering::SeqCst), None));
    let socket = soon("the client's end", sending).await.expect("no panic");
    assert_eq!(socket.closed().await, 1000);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_closed_by_the_server_is_a_proper_end_of_what_arrived() {
    let mut settings = settings();
    settings.idle_timeout = Duration::from_secs(3);
    let fixture = Fixture::with(settings).await;
    let mut pod = Pod::that_reads().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    begin(&mut spdy, &mut pod).await;
    pod.saw_a_whole().await;
    assert_eq!(fixture.end().await.outcome, SessionOutcome::Idle);
    fixture.stop().await;

    let fixture = Fixture::start().await;
    let (mut pod, mut other) = (Pod::that_reads().await, Pod::that_reads().await);
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    begin(&mut spdy, &mut pod).await;
    let mut socket = channels(&fixture, other.port).await;
    socket.send(0, PART).await;
    other.has_a_part().await;
    fixture.stop.cancel();
    pod.saw_a_whole().await;
    other.saw_a_whole().await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_data_is_not_followed_by_an_end() {
    let fixture = Fixture::start().await;
    let (mut pod, mut other) = (Pod::that_waits().await, Pod::that_waits().await);
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let (_, data) = open(&mut spdy, 0, pod.port).await;
    let piece = [b'x'; 30_000];
    while timeout(QUIET, spdy.send(data, &piece, false)).await.is_ok() {}
    let mut socket = channels(&fixture, other.port).await;
    while timeout(QUIET, socket.send(0, &piece)).await.is_ok() {}
    fixture.stop.cancel();
    let ends = fixture.ends(2).await;
    assert!(
        ends.iter()
            .all(|end| end.outcome == SessionOutcome::Shutdown)
    );
    for pod in [&mut pod, &mut other] {
        pod.begin();
    }
    for pod in [pod, other] {
        assert_eq!(pod.saw().await.1, Some(ErrorKind::ConnectionReset));
    }
    fixture.stop().await;
}
