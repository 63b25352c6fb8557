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
use cri_streaming::Meter;

/// Buffer of each direction of a session.
const BUFFER: usize = 32 << 10;

/// After one half of a connection has closed: silence after which the other is closed.
const LINGER: Duration = Duration::from_secs(10);

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
enum End {
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
        // Before they are sent: the client's next bytes are a response to them.
        |bytes| watch.see(bytes),
        |n| note(Direction::Out, n),
        // The bytes it sent before it failed can still be read, however slowly the client takes them.
        None,
    ));
    tokio::select! {
        end = &mut inward => match end {
            End::Read => FirstClosed::ClientBroke,
            End::Done { both } => match silence(&moved, outward).await {
                Some(End::Done { .. }) if both => FirstClosed::Both,
                _ => FirstClosed::Client,
            },
            // The bytes the upstream sent before it closed can still be read.
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

/// Waits for the other direction as long as bytes move. Returns how it ended, or `None` after a silence.
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
        let _ = silence(moved, pending()).await;
    } else {
        // The read reports it.
        pending().await
    }
}

/// Copies one direction. `see` is called with the bytes before they are sent, `sent` with their number afterwards. With
/// `moved`, a receiver that reads nothing is given up some time after the sender has broken off.
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
    // Checked before the shutdown is sent: from then on it may close in response.
    let both = has_closed(to.as_ref());
    // If it has closed already there is nothing to shut down.
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
        tokio::join!(copied, peers).0
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
