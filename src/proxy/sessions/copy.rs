//! Bytes both ways, as they are.

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
use cri_streaming::Meter;

/// What is held of each direction of a session.
const BUFFER: usize = 32 << 10;

/// Silence after which the second half of a connection is closed whose first half is closed already.
const LINGER: Duration = Duration::from_secs(10);

/// Who was the first to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstClosed {
    /// The client, in good order.
    Client,
    /// The client broke the connection off.
    ClientBroke,
    /// The upstream, in good order.
    Upstream,
    /// The upstream broke the connection off.
    UpstreamBroke,
    /// Both ends had closed by the time that either was seen to, so their order is not known. What the upstream had said
    /// has reached the client.
    Both,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no more to read; the other side has been told, unless it had closed too.
    Done { both: bool },
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
        // Before it is sent: what the client does then is an answer to it.
        |bytes| watch.see(bytes),
        |n| note(Direction::Out, n),
        // What it has said before it broke is still to be had, however slowly the client reads.
        None,
    ));
    tokio::select! {
        end = &mut inward => match end {
            End::Read => FirstClosed::ClientBroke,
            End::Done { both } => match silence(&moved, outward).await {
                Some(End::Done { .. }) if both => FirstClosed::Both,
                _ => FirstClosed::Client,
            },
            // What the upstream has said before it closed is still to be had.
            End::Write => {
                silence(&moved, outward).await;
                FirstClosed::Upstream
            }
        },
        end = &mut outward => match end {
            End::Read => FirstClosed::UpstreamBroke,
            End::Write => FirstClosed::ClientBroke,
            End::Done { both } => {
                silence(&moved, inward).await;
                match both {
                    true => FirstClosed::Both,
                    false => FirstClosed::Upstream,
                }
            }
        },
    }
}

/// Waits for the rest, as long as something moves. Returns how it ended, unless it was given up.
async fn silence(moved: &AtomicU64, rest: impl Future<Output = End>) -> Option<End> {
    let mut rest = pin!(rest);
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::select! {
            end = &mut rest => return Some(end),
            () = tokio::time::sleep(LINGER) => {}
        }
        if moved.load(Ordering::Relaxed) == before {
            return None;
        }
    }
}

/// Whether the peer has closed its half already, also if not all that it sent before has been read.
fn has_closed(tcp: &TcpStream) -> bool {
    let mut fds = [PollFd::new(tcp, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(closed)
}

/// Returns when the connection is broken, which is seen also while nobody reads it, and then nothing moves.
async fn given_up(from: &ReadHalf<'_>, moved: Option<&AtomicU64>) {
    if let Some(moved) = moved
        && from.ready(Interest::ERROR).await.is_ok()
    {
        let _ = silence(moved, pending()).await;
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
    // Asked before it is told of this end: from then on it may close in answer.
    let both = has_closed(to.as_ref());
    // Whoever has gone already need not be told.
    let _ = to.shutdown().await;
    End::Done { both }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use cri_streaming::{ObservedSession, SessionInfo};
    use cri_streaming::{Observers, SessionKind, Transport};

    /// A connection: the end that is copied, and the end of the peer.
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

    /// Who is said to be first, if these have closed before anybody looked.
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
        let about = SessionInfo {
            kind: SessionKind::Exec,
            id: "c".into(),
            command: vec![],
            extensions: http::Extensions::new(),
        };
        let observers = Observers(Arc::from([]));
        let session = ObservedSession::begin(about, Transport::Spdy, "v4", &observers);
        let mut watch = ExitSniffer::new(SessionKind::Exec, Transport::Tls);
        let meter = session.meter();
        let copied = both(&mut client, &mut upstream, &meter, &mut watch);
        // Whoever has not closed does so once the other end is seen to have.
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
        tokio::join!(copied, peers).0
    }

    #[tokio::test]
    async fn an_order_that_cannot_be_known_is_not_told() {
        // The order in which the two directions are looked at is random.
        for _ in 0..20 {
            assert_eq!(first(true, false).await, FirstClosed::Client);
            assert_eq!(first(false, true).await, FirstClosed::Upstream);
            assert_eq!(first(true, true).await, FirstClosed::Both);
        }
    }
}
