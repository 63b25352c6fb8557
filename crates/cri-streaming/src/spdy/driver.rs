//! The task of a connection: reads, writes, and enforces timeouts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use super::Limits;
use super::core::Shared;
use super::error::{ConnectionEnd, Reason};
use super::frame;
use super::input::Input;
use super::output::Output;
use super::stream::Handle;

/// Maximum number of reads and writes before the task yields.
const TURNS: usize = 32;

/// A byte stream in both directions.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A future that runs the connection and resolves when it has ended. Dropping it breaks the connection: readers then see
/// the end of file, writers a broken pipe.
pub struct Driver {
    io: Box<dyn Io>,
    shared: Arc<Shared>,
    limits: Limits,
    input: Input,
    output: Output,
    stage: Stage,
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
enum Stage {
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

impl Driver {
    pub(super) fn new(io: Box<dyn Io>, shared: Arc<Shared>, limits: Limits) -> Self {
        Self {
            io,
            shared,
            limits,
            input: Input::new(),
            output: Output::default(),
            stage: Stage::Open,
            moved_at: None,
            full_since: None,
            end_by: None,
            timer: None,
        }
    }

    /// Returns a handle that can end the connection.
    pub fn handle(&self) -> Handle {
        Handle::new(self.shared.clone())
    }

    /// Reads once. Returns whether anything happened.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Reason> {
        let is_open = self.stage == Stage::Open;
        if is_open && !self.shared.lock().may_read() {
            return Ok(false);
        }
        let Poll::Ready(result) = self.input.poll_read(&mut *self.io, cx) else {
            return Ok(false);
        };
        let n = result.map_err(Reason::of)?;
        let mut core = self.shared.lock();
        core.counters.bytes_in += n as u64;
        match n {
            0 if is_open => core.close(Reason::ClientGone),
            0 if self.stage == Stage::Draining => self.stage = Stage::Done,
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
        for _ in 0..TURNS {
            if self.shared.lock().is_closing() || !matches!(self.read(cx), Ok(true)) {
                return;
            }
        }
    }

    /// Writes once. Returns whether anything happened.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Reason> {
        self.shared.lock().fill(&mut self.output);
        if self.output.is_empty() {
            return self.go_on_ending(cx);
        }
        let Poll::Ready(result) = self.output.poll_write(&mut *self.io, cx) else {
            return Ok(false);
        };
        let n = result.map_err(Reason::of)?;
        if self.shared.lock().sent(n) {
            self.moved_at = Some(Instant::now());
        }
        Ok(true)
    }

    /// Continues the shutdown after all queued data has been written.
    fn go_on_ending(&mut self, cx: &mut Context<'_>) -> Result<bool, Reason> {
        match self.stage {
            Stage::Open | Stage::Draining | Stage::Done => return Ok(false),
            Stage::Flushing => {
                let core = self.shared.lock();
                let mut bytes = Vec::new();
                frame::go_away(&mut bytes, core.last_id, core.is_malformed());
                self.output.push(bytes);
                self.stage = Stage::LastWords;
            }
            Stage::LastWords => {
                let Poll::Ready(result) = Pin::new(&mut *self.io).poll_shutdown(cx) else {
                    return Ok(false);
                };
                result.map_err(Reason::of)?;
                self.stage = Stage::Draining;
            }
        }
        Ok(true)
    }

    /// Starts the shutdown if it was requested.
    fn look_around(&mut self) {
        let mut core = self.shared.lock();
        if core.has_gone_away && core.are_streams_over() {
            core.close(Reason::GoAway);
        }
        if core.is_closing() && self.stage == Stage::Open {
            self.stage = Stage::Flushing;
            self.end_by = Some(after(Instant::now(), self.limits.linger));
            self.input.discard();
        }
        self.full_since = match self.full_since {
            _ if !core.is_full() || self.stage != Stage::Open => None,
            None => Some(Instant::now()),
            since => since,
        };
    }

    /// Returns the timeout that has expired, if any: a connection that is always busy never waits for one.
    fn due(&mut self) -> Option<Alarm> {
        let (next, alarm) = self.next_alarm();
        (Instant::now() >= next).then_some(alarm)
    }

    /// Waits for the next timeout.
    fn keep_time(&mut self, cx: &mut Context<'_>) -> Poll<Alarm> {
        let (next, alarm) = self.next_alarm();
        let new = || Box::pin(sleep_until(next));
        let timer = self.timer.get_or_insert_with(new);
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

    fn next_alarm(&mut self) -> (Instant, Alarm) {
        if let Some(end_by) = self.end_by {
            return (end_by, Alarm::Late);
        }
        let moved_at = *self.moved_at.get_or_insert_with(Instant::now);
        let idle = after(moved_at, self.limits.idle);
        match self.full_since.map(|since| after(since, self.limits.stall)) {
            Some(stalled) if stalled < idle => (stalled, Alarm::Stalled),
            _ => (idle, Alarm::Idle),
        }
    }

    fn finish(&mut self, reason: Reason) -> Poll<ConnectionEnd> {
        let mut core = self.shared.lock();
        if matches!(reason, Reason::ClientGone | Reason::Io(_)) {
            core.lose();
        }
        Poll::Ready(ConnectionEnd {
            reason: core.end().unwrap_or(reason),
            is_flushed: matches!(self.stage, Stage::Draining | Stage::Done),
            counters: core.counters,
        })
    }
}

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    Idle,
    Stalled,
    Late,
}

/// Adds a duration; if it overflows, returns an instant too far in the future to ever come.
fn after(at: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    at + time.min(FAR)
}

impl Future for Driver {
    type Output = ConnectionEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let this = &mut *self;
        this.shared.lock().set_driver(cx);
        for _ in 0..TURNS {
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
            if this.stage == Stage::Done {
                return this.finish(Reason::Closed);
            }
            let due = if has_moved {
                this.due()
            } else {
                Some(ready!(this.keep_time(cx)))
            };
            match due {
                None => {}
                Some(Alarm::Late) => return this.finish(Reason::Closed),
                Some(Alarm::Idle) => this.shared.lock().close(Reason::Idle),
                Some(Alarm::Stalled) => {
                    this.full_since = None;
                    this.shared.lock().reset_stalled();
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.lock().end();
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
