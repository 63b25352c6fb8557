//! One session as it is counted: begun once, ended once, with what it carried in between.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::observe::{
    Direction, Observers, Outcome, Proxied, SessionBegin, SessionEnd, SessionKind, TrafficCounters,
    Transport,
};
use super::request::PendingSession;

/// The number of the next session, whoever serves it.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// How a session came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionResult {
    /// How it ended.
    pub outcome: Outcome,
    /// The exit code of the command, if it ended.
    pub exit_code: Option<i32>,
    /// What is known of it if another server served it.
    pub proxied: Option<Proxied>,
}

/// Whom a session is about, what it runs, and who asked for it.
#[derive(Clone)]
pub struct SessionInfo {
    /// The kind of session.
    pub kind: SessionKind,
    /// Id of the container or sandbox.
    pub id: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// What its observers get.
    pub extensions: Extensions,
}

impl std::fmt::Debug for SessionInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionInfo").finish_non_exhaustive()
    }
}

impl SessionInfo {
    pub(super) fn of(asked: &PendingSession) -> Self {
        Self {
            kind: asked.request.kind(),
            id: asked.request.id().to_owned(),
            command: asked.request.argv().to_vec(),
            extensions: asked.extensions.clone(),
        }
    }
}

impl From<Outcome> for SessionResult {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            exit_code: None,
            proxied: None,
        }
    }
}

/// What a session carries.
pub struct Meter {
    kind: SessionKind,
    carried: Arc<TrafficCounters>,
    connections: AtomicU64,
    observers: Observers,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// Counts bytes that the session carried.
    pub fn count(&self, direction: Direction, n: usize) {
        if n == 0 {
            return;
        }
        let n = n as u64;
        let total = match direction {
            Direction::In => &self.carried.bytes_in,
            Direction::Out => &self.carried.bytes_out,
        };
        total.fetch_add(n, Ordering::Relaxed);
        self.observers
            .each(|observer| observer.bytes(self.kind, direction, n));
    }

    /// Bytes to the container or pod, and from it, so far.
    pub fn bytes(&self) -> (u64, u64) {
        self.carried.bytes()
    }

    /// A connection is forwarded.
    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// A session, counted until it is dropped.
pub struct ObservedSession {
    number: u64,
    about: SessionInfo,
    transport: Transport,
    protocol: &'static str,
    began: Instant,
    meter: Arc<Meter>,
    ended: SessionResult,
}

impl std::fmt::Debug for ObservedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedSession").finish_non_exhaustive()
    }
}

impl ObservedSession {
    /// Begins a session and notifies its observers.
    pub fn begin(
        about: SessionInfo,
        transport: Transport,
        protocol: &'static str,
        observers: &Observers,
    ) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let carried = Arc::<TrafficCounters>::default();
        let begin = SessionBegin {
            number,
            kind: about.kind,
            id: &about.id,
            transport,
            protocol,
            command: &about.command,
            extensions: &about.extensions,
            carried: &carried,
        };
        observers.each(|observer| observer.began(&begin));
        let kind = about.kind;
        Self {
            number,
            about,
            transport,
            protocol,
            began: Instant::now(),
            meter: Arc::new(Meter {
                kind,
                carried,
                connections: AtomicU64::new(0),
                observers: observers.clone(),
            }),
            // What holds if it is dropped where it stands.
            ended: Outcome::Shutdown.into(),
        }
    }

    /// Counts what the session carries.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Ends the session with this result and notifies its observers.
    pub fn end(mut self, ended: SessionResult) {
        self.ended = ended;
    }
}

impl Drop for ObservedSession {
    fn drop(&mut self) {
        // Before anyone is told, so that nobody sees it open and ended at once.
        self.meter.carried.end();
        let (bytes_in, bytes_out) = self.meter.carried.bytes();
        let end = SessionEnd {
            number: self.number,
            kind: self.about.kind,
            id: &self.about.id,
            transport: self.transport,
            protocol: self.protocol,
            duration: self.began.elapsed(),
            bytes_in,
            bytes_out,
            outcome: self.ended.outcome,
            exit_code: self.ended.exit_code,
            connections: self.meter.connections.load(Ordering::Relaxed),
            command: &self.about.command,
            extensions: &self.about.extensions,
            proxied: self.ended.proxied,
        };
        self.meter.observers.each(|observer| observer.ended(&end));
    }
}

/// What happens on a connection: when something was last sent either way, and whether we are done with sending.
#[derive(Clone)]
pub(super) struct Activity {
    start: Instant,
    /// Milliseconds after `start`.
    last: Arc<AtomicU64>,
    /// The next write is a heartbeat.
    heartbeat: Arc<AtomicBool>,
    shut: CancellationToken,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: Arc::default(),
            heartbeat: Arc::default(),
            shut: CancellationToken::new(),
        }
    }

    /// Returns when everything was sent, and our half of the connection was shut.
    pub(super) async fn shut(&self) {
        self.shut.cancelled().await;
    }

    /// What is written next is a heartbeat of ours, and does not count: with it nothing would ever be silent.
    pub(super) fn expect_heartbeat(&self) {
        self.heartbeat.store(true, Ordering::Relaxed);
    }

    fn note_written(&self) {
        let is_heartbeat =
            self.heartbeat.load(Ordering::Relaxed) && self.heartbeat.swap(false, Ordering::Relaxed);
        if !is_heartbeat {
            self.note();
        }
    }

    fn note(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing was sent for so long.
    pub(super) async fn silent_for(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let due = self.start + last + limit;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

/// A connection whose activity is noted: any byte counts, the client's pings too, but not our heartbeats.
pub(super) struct ActivityIo<T> {
    inner: T,
    activity: Activity,
}

impl<T> ActivityIo<T> {
    pub(super) fn new(inner: T, activity: Activity) -> Self {
        Self { inner, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ActivityIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.note();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ActivityIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.activity.note_written();
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.activity.note_written();
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        self.activity.shut.cancel();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_byte() {
        let activity = Activity::new();
        let limit = Duration::from_secs(10);
        let (mut far, near) = tokio::io::duplex(16);
        let mut near = ActivityIo::new(near, activity.clone());
        let silent = tokio::spawn(async move {
            activity.silent_for(limit).await;
            Instant::now()
        });
        let start = Instant::now();
        tokio::time::sleep(Duration::from_secs(6)).await;
        far.write_all(b"x").await.expect("written");
        near.read_u8().await.expect("read");
        tokio::time::sleep(Duration::from_secs(6)).await;
        near.write_all(b"y").await.expect("written");
        let end = silent.await.expect("no panic");
        assert_eq!(end - start, Duration::from_secs(22));
    }
}
