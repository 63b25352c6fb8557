//! Copies bytes in both directions.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::exit_sniffer::ExitSniffer;
use cri_streaming::Direction;
use cri_streaming::SessionMeter;

/// Buffer of each direction of a session.
const COPY_BUFFER_BYTES: usize = 32 << 10;

/// After one half of a connection has closed: silence after which the other is closed.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(10);

/// Which end closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstClosed {
    /// The client, cleanly.
    Client,
    /// The client, by a reset or error.
    ClientBroke,
    /// The upstream, cleanly.
    Upstream,
    /// The upstream, by a reset or error.
    UpstreamBroke,
    /// Both had closed before either was noticed, so their order is unknown. The client has received everything the
    /// upstream sent.
    Both,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyOutcome {
    /// End of file, and the other side's half was shut down, unless it had closed too.
    Done { both: bool },
    /// The source failed.
    Read,
    /// The destination failed.
    Write,
}

/// Copies until both directions have ended, or one has and the other is silent. `watch` sees the bytes for the client.
pub(super) async fn both(
    client: &mut TcpStream,
    upstream: &mut TcpStream,
    meter: &SessionMeter,
    watch: &mut ExitSniffer,
) -> FirstClosed {
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
        // Before they are sent: the client's next bytes are a response to them.
        |bytes| watch.see(bytes),
        |n| note(Direction::Out, n),
        // The bytes it sent before it failed can still be read, however slowly the client takes them.
        None,
    ));
    tokio::select! {
            (end, client) = &mut inward => match end {
                CopyOutcome::Read => FirstClosed::ClientBroke,
                CopyOutcome::Done { both } => match silence(&moved, outward).await {
                    Some((CopyOutcome::Done { .. }, _)) if both => FirstClosed::Both,
                    _ => FirstClosed::Client,
                },
                CopyOutcome::Write => {
                    let mut discarding = pin!(discard(client, &moved));
                    tokio::select! {
                        // The bytes that the upstream sent before it closed can still be read. They are finite, and only the client
                        // decides how long they take.
                        _ = &mut outward => {
                            silence(&moved, discarding).await;
                        }
                        () = &mut discarding => {
                            silence(&moved, outward).await;
                        }
                    }
                    FirstClosed::Upstream
                }
            },
            (end, _) = &mut outward => match end {
                CopyOutcome::Read => FirstClosed::UpstreamBroke,
                CopyOutcome::Write => FirstClosed::ClientBroke,
                CopyOutcome::Done { both } => {
                    if let Some((CopyOutcome::Write, client)) = silence(&moved, inward).await {
                        silence(&moved, discard(client, &moved)).await;
                    }
                    if both {
    FirstClosed::Both
    } else {
    FirstClosed::Upstream
    }
                }
            },
        }
}

/// Reads what a client sends after the upstream has closed, for instance its pings, until it closes too. A socket that is
/// closed with unread data, or receives data afterwards, is reset, and what the client has not received is lost.
async fn discard(mut client: ReadHalf<'_>, moved: &AtomicU64) {
    let mut buffer = vec![0; 1 << 10];
    while let Ok(n @ 1..) = client.read(&mut buffer).await {
        moved.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Waits for the other direction as long as bytes move. Returns how it ended, or `None` after a silence.
async fn silence<T>(moved: &AtomicU64, rest: impl Future<Output = T>) -> Option<T> {
    let mut rest = pin!(rest);
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::select! {
            end = &mut rest => return Some(end),
            () = tokio::time::sleep(HALF_CLOSED_TIMEOUT) => {}
        }
        if moved.load(Ordering::Relaxed) == before {
            return None;
        }
    }
}

/// Returns whether the peer has closed its half already, even with unread data.
fn has_closed(tcp: &TcpStream) -> bool {
    let mut fds = [PollFd::new(tcp, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(closed)
}

/// Returns when the connection is broken, also while nothing reads from it, and no bytes have moved for a while.
async fn given_up(from: &ReadHalf<'_>, moved: Option<&AtomicU64>) {
    if let Some(moved) = moved
        && from.ready(Interest::ERROR).await.is_ok()
    {
        let _ = silence(moved, pending::<()>()).await;
    } else {
        // The read reports it.
        pending().await
    }
}

/// Copies one direction. Returns how it ended, and the source. `see` is called with the bytes before they are sent, `sent`
/// with their number afterwards. With `moved`, a receiver that reads nothing is given up some time after the sender has
/// broken off.
async fn pump<'a>(
    mut from: ReadHalf<'a>,
    mut to: WriteHalf<'_>,
    mut see: impl FnMut(&[u8]),
    sent: impl Fn(usize),
    moved: Option<&AtomicU64>,
) -> (CopyOutcome, ReadHalf<'a>) {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return (CopyOutcome::Read, from),
        };
        see(&buffer[..n]);
        tokio::select! {
            biased;
            written = to.write_all(&buffer[..n]) => match written {
                Ok(()) => sent(n),
                Err(_) => return (CopyOutcome::Write, from),
            },
            () = given_up(&from, moved) => return (CopyOutcome::Read, from),
        }
    }
    // Checked before the shutdown is sent: from then on it may close in response.
    let both = has_closed(to.as_ref());
    // If it has closed already there is nothing to shut down.
    let _ = to.shutdown().await;
    (CopyOutcome::Done { both }, from)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use tokio::net::TcpListener;

    use super::*;
    use cri_streaming::{ObservedSession, SessionInfo};
    use cri_streaming::{SessionKind, SessionObservers, Transport};

    /// A connection: the copied end and the peer's.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connected"), far.expect("accepted").0)
    }

    async fn until_closed(tcp: &TcpStream) {
        while !has_closed(tcp) {
            tokio::task::yield_now().await;
        }
    }

    /// Copies until the end.
    async fn copied(client: &mut TcpStream, upstream: &mut TcpStream) -> FirstClosed {
        let about = SessionInfo {
            kind: SessionKind::Exec,
            id: "c".into(),
            command: vec![],
            extensions: http::Extensions::new(),
        };
        let observers = SessionObservers(Arc::from([]));
        let session = ObservedSession::begin(about, Transport::Spdy, "v4", &observers);
        let mut watch = ExitSniffer::new(SessionKind::Exec, Transport::Tls);
        both(client, upstream, &session.meter(), &mut watch).await
    }

    /// The end reported as first, if these have closed before the copy starts.
    async fn first(client_closed: bool, upstream_closed: bool) -> FirstClosed {
        let ((mut client, mut kubectl), (mut upstream, mut runtime)) = tokio::join!(pair(), pair());
        runtime.write_all(b"said").await.expect("sent");
        if client_closed {
            kubectl.shutdown().await.expect("closed");
            until_closed(&client).await;
        }
        if upstream_closed {
            runtime.shutdown().await.expect("closed");
            until_closed(&upstream).await;
        }
        // An open end closes once it sees that the other has.
        let peers = async {
            let mut text = Vec::new();
            if !upstream_closed {
                runtime.read_to_end(&mut text).await.expect("its end");
                runtime.shutdown().await.expect("closed");
            }
            kubectl.read_to_end(&mut text).await.expect("its end");
            if !client_closed {
                kubectl.shutdown().await.expect("closed");
            }
            assert_eq!(text, b"said");
        };
        tokio::join!(copied(&mut client, &mut upstream), peers).0
    }

    /// A client that pauses after its upstream has sent everything and closed; `room` is the size of the socket buffer for it.
    async fn pauses(room: usize) {
        const LENGTH: usize = 150_000;
        let ((mut client, mut kubectl), (mut upstream, mut runtime)) = tokio::join!(pair(), pair());
        kubectl.set_nodelay(true).expect("set");
        set_socket_send_buffer_size(&client, room).expect("set");
        set_socket_recv_buffer_size(&kubectl, 4096).expect("set");
        set_socket_recv_buffer_size(&upstream, 2 * LENGTH).expect("set");
        runtime.write_all(&[b'x'; LENGTH]).await.expect("sent");
        drop(runtime);
        until_closed(&upstream).await;
        let copying = tokio::spawn(async move { copied(&mut client, &mut upstream).await });
        tokio::time::pause();
        // Like the pings of a client that waits for its terminal: the closed upstream answers with a reset.
        for _ in 0..5 {
            kubectl.write_all(b"ping").await.expect("sent");
            tokio::time::sleep(HALF_CLOSED_TIMEOUT / 100).await;
        }
        tokio::time::sleep(10 * HALF_CLOSED_TIMEOUT).await;
        tokio::time::resume();
        let mut text = Vec::new();
        kubectl.read_to_end(&mut text).await.expect("its end");
        assert_eq!(text.len(), LENGTH);
        drop(kubectl);
        assert_eq!(copying.await.expect("no panic"), FirstClosed::Upstream);
    }

    #[tokio::test]
    async fn a_client_that_pauses_gets_what_an_upstream_sent_before_it_closed() {
        // Most of it is in the socket of the upstream.
        pauses(4096).await;
        // All bytes are in the client's buffer.
        pauses(1 << 20).await;
    }

    #[tokio::test]
    async fn an_unknown_order_is_reported_as_both() {
        // The order in which the two directions are polled is random.
        for _ in 0..20 {
            assert_eq!(first(true, false).await, FirstClosed::Client);
            assert_eq!(first(false, true).await, FirstClosed::Upstream);
            assert_eq!(first(true, true).await, FirstClosed::Both);
        }
    }
}
