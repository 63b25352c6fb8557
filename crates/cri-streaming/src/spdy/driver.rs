//! The task of a connection: reads, writes, and enforces timeouts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use super::core::SharedConnection;
use super::error::{CloseReason, ConnectionEnd};
use super::frame;
use super::input::FrameInput;
use super::limits::SpdyLimits;
use super::output::FrameOutput;
use super::stream::SpdyHandle;

/// Maximum number of reads and writes before the task yields.
const MAX_TURNS: usize = 32;

/// A byte stream in both directions.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A future that runs the connection and resolves when it has ended. Dropping it breaks the connection: readers then see
/// the end of file, writers a broken pipe.
pub struct SpdyDriver {
    io: Box<dyn ByteStream>,
    shared: Arc<SharedConnection>,
    limits: SpdyLimits,
    input: FrameInput,
    output: FrameOutput,
    stage: ShutdownStage,
    /// When a byte was last read or written.
    moved_at: Option<Instant>,
    /// Since when the connection has not been read because too much is unread.
    full_since: Option<Instant>,
    /// Deadline of the shutdown.
    end_by: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Progress of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownStage {
    Open,
    /// Queued data is being sent.
    Flushing,
    /// The GOAWAY is being sent.
    LastWords,
    /// Waits for the peer to close.
    Draining,
    /// The peer has closed.
    Done,
}

impl SpdyDriver {
    pub(super) fn new(
        io: Box<dyn ByteStream>,
        shared: Arc<SharedConnection>,
        limits: SpdyLimits,
    ) -> Self {
        Self {
            io,
            shared,
            limits,
            input: FrameInput::new(),
            output: FrameOutput::default(),
            stage: ShutdownStage::Open,
            moved_at: None,
            full_since: None,
            end_by: None,
            timer: None,
        }
    }

    /// Returns a handle that can end the connection.
    pub fn handle(&self) -> SpdyHandle {
        SpdyHandle::new(self.shared.clone())
    }

    /// Reads once. Returns whether anything happened.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let is_open = self.stage == ShutdownStage::Open;
        if is_open && !self.shared.lock().may_read() {
            return Ok(false);
        }
        let Poll::Ready(result) = self.input.poll_read(&mut *self.io, cx) else {
            return Ok(false);
        };
        let n = result.map_err(CloseReason::from_io)?;
        let mut core = self.shared.lock();
        core.counters.bytes_in += n as u64;
        match n {
            0 if is_open => core.close(CloseReason::ClientGone),
            0 if self.stage == ShutdownStage::Draining => self.stage = ShutdownStage::Done,
            // Either the peer still reads, or writing will fail.
            0 => return Ok(false),
            _ if is_open => {
                self.moved_at = Some(Instant::now());
                if let Err(malformed) = core.receive(&mut self.input) {
                    core.malformed(malformed);
                }
            }
            _ => self.input.discard(),
        }
        Ok(true)
    }

    /// Reads what arrived before the connection broke: it may contain the ends of streams.
    fn read_rest(&mut self, cx: &mut Context<'_>) {
        for _ in 0..MAX_TURNS {
            if self.shared.lock().is_closing() || !matches!(self.read(cx), Ok(true)) {
                return;
            }
        }
    }

    /// Writes once. Returns whether anything happened.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        self.shared.lock().fill(&mut self.output);
        if self.output.is_empty() {
            return self.go_on_ending(cx);
        }
        let Poll::Ready(result) = self.output.poll_write(&mut *self.io, cx) else {
            return Ok(false);
        };
        let n = result.map_err(CloseReason::from_io)?;
        if self.shared.lock().sent(n) {
            self.moved_at = Some(Instant::now());
        }
        Ok(true)
    }

    /// Continues the shutdown after all queued data has been written.
    fn go_on_ending(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        match self.stage {
            ShutdownStage::Open | ShutdownStage::Draining | ShutdownStage::Done => {
                return Ok(false);
            }
            ShutdownStage::Flushing => {
                let core = self.shared.lock();
                let mut bytes = Vec::new();
                frame::go_away(&mut bytes, core.last_id, core.is_malformed());
                self.output.push(bytes);
                self.stage = ShutdownStage::LastWords;
            }
            ShutdownStage::LastWords => {
                let Poll::Ready(result) = Pin::new(&mut *self.io).poll_shutdown(cx) else {
                    return Ok(false);
                };
                result.map_err(CloseReason::from_io)?;
                self.stage = ShutdownStage::Draining;
            }
        }
        Ok(true)
    }

    /// Starts the shutdown if it was requested.
    fn look_around(&mut self) {
        let mut core = self.shared.lock();
        if core.has_gone_away && core.are_streams_over() {
            core.close(CloseReason::GoAway);
        }
        if core.is_closing() && self.stage == ShutdownStage::Open {
            self.stage = ShutdownStage::Flushing;
            self.end_by = Some(after(Instant::now(), self.limits.linger));
            self.input.discard();
        }
        self.full_since = match self.full_since {
            _ if !core.is_full() || self.stage != ShutdownStage::Open => None,
            None => Some(Instant::now()),
            since => since,
        };
    }

    /// Returns the timeout that has expired, if any: a connection that is always busy never waits for one.
    fn due(&mut self) -> Option<ConnectionTimeout> {
        let (next, alarm) = self.next_alarm();
        (Instant::now() >= next).then_some(alarm)
    }

    /// Waits for the next timeout.
    fn keep_time(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionTimeout> {
        let (next, alarm) = self.next_alarm();
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(next)));
        // A timer that was set too early is set again when it fires: cheaper than resetting it for every frame.
        if timer.deadline() > next {
            timer.as_mut().reset(next);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= next {
                return Poll::Ready(alarm);
            }
            timer.as_mut().reset(next);
        }
        Poll::Pending
    }

    fn next_alarm(&mut self) -> (Instant, ConnectionTimeout) {
        if let Some(end_by) = self.end_by {
            return (end_by, ConnectionTimeout::Late);
        }
        let moved_at = *self.moved_at.get_or_insert_with(Instant::now);
        let idle = after(moved_at, self.limits.idle);
        match self.full_since.map(|since| after(since, self.limits.stall)) {
            Some(stalled) if stalled < idle => (stalled, ConnectionTimeout::Stalled),
            _ => (idle, ConnectionTimeout::Idle),
        }
    }

    fn finish(&mut self, reason: CloseReason) -> Poll<ConnectionEnd> {
        let mut core = self.shared.lock();
        if matches!(reason, CloseReason::ClientGone | CloseReason::Io(_)) {
            core.lose();
        }
        Poll::Ready(ConnectionEnd {
            reason: core.end().unwrap_or(reason),
            is_flushed: matches!(self.stage, ShutdownStage::Draining | ShutdownStage::Done),
            counters: core.counters,
        })
    }
}

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionTimeout {
    Idle,
    Stalled,
    Late,
}

/// Adds a duration; if it overflows, returns an instant too far in the future to ever come.
fn after(at: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    at + time.min(FAR)
}

impl Future for SpdyDriver {
    type Output = ConnectionEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let this = &mut *self;
        this.shared.lock().set_driver(cx);
        for _ in 0..MAX_TURNS {
            this.look_around();
            let read = this.read(cx);
            let write = this.write(cx);
            let has_moved = match (read, write) {
                (Err(reason), _) => return this.finish(reason),
                (_, Err(reason)) => {
                    this.read_rest(cx);
                    return this.finish(reason);
                }
                (Ok(read), Ok(write)) => read || write,
            };
            if this.stage == ShutdownStage::Done {
                return this.finish(CloseReason::Closed);
            }
            let due = if has_moved {
                this.due()
            } else {
                Some(ready!(this.keep_time(cx)))
            };
            match due {
                None => {}
                Some(ConnectionTimeout::Late) => return this.finish(CloseReason::Closed),
                Some(ConnectionTimeout::Idle) => this.shared.lock().close(CloseReason::Idle),
                Some(ConnectionTimeout::Stalled) => {
                    this.full_since = None;
                    this.shared.lock().reset_stalled();
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for SpdyDriver {
    fn drop(&mut self) {
        self.shared.lock().end();
    }
}

impl fmt::Debug for SpdyDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
