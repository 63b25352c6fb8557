//! Observation of one session: its start, its end, and counters in between.

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
    Direction, ProxiedSession, SessionBegin, SessionEnd, SessionKind, SessionObservers,
    SessionOutcome, TrafficCounters, Transport,
};
use super::request::PendingSession;

/// The number of the next session, served here or proxied.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// The result of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionResult {
    /// How it ended.
    pub outcome: SessionOutcome,
    /// The exit code of the command, if it exited.
    pub exit_code: Option<i32>,
    /// Details of a proxied session.
    pub proxied: Option<ProxiedSession>,
}

/// The target, command and context of a session.
#[derive(Clone)]
pub struct SessionInfo {
    /// The kind of session.
    pub kind: SessionKind,
    /// Id of the container or sandbox.
    pub id: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The extensions for observers.
    pub extensions: Extensions,
}

impl std::fmt::Debug for SessionInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionInfo").finish_non_exhaustive()
    }
}

impl SessionInfo {
    pub(super) fn from_pending(pending: &PendingSession) -> Self {
        Self {
            kind: pending.request.kind(),
            id: pending.request.id().to_owned(),
            command: pending.request.argv().to_vec(),
            extensions: pending.extensions.clone(),
        }
    }
}

impl From<SessionOutcome> for SessionResult {
    fn from(outcome: SessionOutcome) -> Self {
        Self {
            outcome,
            exit_code: None,
            proxied: None,
        }
    }
}

/// The counters of a session.
#[derive(Debug)]
pub struct SessionMeter {
    kind: SessionKind,
    carried: Arc<TrafficCounters>,
    connections: AtomicU64,
    observers: SessionObservers,
}

impl SessionMeter {
    /// Counts bytes of the session.
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

    /// Bytes to and from the container or pod so far.
    pub fn bytes(&self) -> (u64, u64) {
        self.carried.bytes()
    }

    /// Counts a forwarded connection.
    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// A session, open until it is dropped.
#[derive(Debug)]
pub struct ObservedSession {
    number: u64,
    info: SessionInfo,
    transport: Transport,
    protocol: &'static str,
    began: Instant,
    meter: Arc<SessionMeter>,
    ended: SessionResult,
}

impl ObservedSession {
    /// Starts a session and notifies its observers.
    pub fn begin(
        info: SessionInfo,
        transport: Transport,
        protocol: &'static str,
        observers: &SessionObservers,
    ) -> Self {
        let meter = SessionMeter {
            kind: info.kind,
            carried: Arc::default(),
            connections: AtomicU64::new(0),
            observers: observers.clone(),
        };
        let session = Self {
            number: NEXT_SESSION.fetch_add(1, Ordering::Relaxed),
            info,
            transport,
            protocol,
            began: Instant::now(),
            meter: Arc::new(meter),
            // The outcome if the session is dropped before its end.
            ended: SessionOutcome::Shutdown.into(),
        };
        observers.each(|observer| observer.began(&session.begin_facts()));
        session
    }

    fn begin_facts(&self) -> SessionBegin<'_> {
        SessionBegin {
            number: self.number,
            kind: self.info.kind,
            id: &self.info.id,
            transport: self.transport,
            protocol: self.protocol,
            command: &self.info.command,
            extensions: &self.info.extensions,
            carried: &self.meter.carried,
        }
    }

    /// The counters of the session.
    pub fn meter(&self) -> Arc<SessionMeter> {
        Arc::clone(&self.meter)
    }

    /// Ends the session with this result and notifies its observers.
    pub fn end(mut self, ended: SessionResult) {
        self.ended = ended;
    }
}

impl Drop for ObservedSession {
    fn drop(&mut self) {
        // Before the observers are notified, so that none of them sees the session both open and ended.
        self.meter.carried.end();
        let (bytes_in, bytes_out) = self.meter.carried.bytes();
        let end = SessionEnd {
            duration: self.began.elapsed(),
            bytes_in,
            bytes_out,
            outcome: self.ended.outcome,
            exit_code: self.ended.exit_code,
            connections: self.meter.connections.load(Ordering::Relaxed),
            proxied: self.ended.proxied,
        };
        let begin = self.begin_facts();
        self.meter
            .observers
            .each(|observer| observer.ended(&begin, &end));
    }
}

/// Activity of a connection: when it last carried traffic, and whether its write half was shut down.
#[derive(Clone)]
pub(super) struct ConnectionActivity {
    start: Instant,
    /// Milliseconds since `start`.
    last: Arc<AtomicU64>,
    /// Set if the next write is a heartbeat.
    heartbeat: Arc<AtomicBool>,
    shut: CancellationToken,
}

impl ConnectionActivity {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: Arc::default(),
            heartbeat: Arc::default(),
            shut: CancellationToken::new(),
        }
    }

    /// Returns once everything was sent and the write half of the connection was shut down.
    pub(super) async fn shut(&self) {
        self.shut.cancelled().await;
    }

    /// Marks the next write as a heartbeat. It does not count as activity, or the idle timeout would never expire.
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

    /// Returns once the connection was idle for this long.
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

/// Records the activity of a connection: every byte, including the client's pings, but not heartbeats.
pub(super) struct ActivityIo<T> {
    inner: T,
    activity: ConnectionActivity,
}

impl<T> ActivityIo<T> {
    pub(super) fn new(inner: T, activity: ConnectionActivity) -> Self {
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
    async fn idle_time_starts_at_the_last_byte() {
        let activity = ConnectionActivity::new();
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
