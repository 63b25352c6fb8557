//! What the task of a connection and those who hold its streams share: the streams, flow control, and what is to be
//! written. Whoever writes appends to one buffer and wakes the task once; it leaves with one system call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::Request;
use tokio::io::AsyncWrite;

use super::error::{Error, Fault, Reason};
use super::frame;
use super::hpack::encode::Encoder;
use super::io::Output;
use super::stream::{Key, Streams, keep};
use super::{CONNECTION_WINDOW, STREAM_WINDOW};

/// How many streams of ours are remembered, for what was on its way when they were reset.
const REMEMBERED: usize = 256;

/// Streams that a client opens before it knows how many it may.
const FIRST_STREAMS: usize = 100;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) role: Role,
    pub(super) streams: Streams,
    pub(super) out: Output,
    pub(super) encoder: Encoder,
    /// What may still be sent, in bytes.
    pub(super) send_window: i64,
    /// The same for a new stream.
    pub(super) initial_window: i64,
    /// How many streams there may be at once: what the server allows, or in a server what it has allowed.
    pub(super) max_streams: usize,
    /// What the other end may still send, in bytes.
    pub(super) receive_window: i64,
    /// What was read and not given back to that window yet.
    taken: i64,
    /// The newest stream.
    pub(super) last_id: u32,
    /// The newest stream of which something may have left.
    sent_id: u32,
    /// Streams that were reset here.
    resets: VecDeque<u32>,
    /// Writers that wait for room on the connection.
    queued: VecDeque<Key>,
    /// Callers that wait for a stream.
    waiting: Vec<Waker>,
    /// Why there are no more streams.
    pub(super) over: Option<Error>,
    /// No more streams will be opened from here (client) or taken (server).
    pub(super) is_leaving: bool,
    task: Option<Waker>,
    /// The task runs, or is about to.
    is_awake: bool,
    /// Requests that nobody has looked at yet.
    pub(super) accepted: VecDeque<(Key, Request<()>)>,
    /// Calls whose stream is no more.
    pub(super) cancelled: Vec<Key>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Core>);

impl Shared {
    pub(super) fn new(role: Role) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Core {
            role,
            streams: Streams::default(),
            out: Output::default(),
            encoder: Encoder::default(),
            send_window: 65_535,
            initial_window: 65_535,
            max_streams: FIRST_STREAMS,
            receive_window: i64::from(CONNECTION_WINDOW),
            taken: 0,
            last_id: 0,
            sent_id: 0,
            resets: VecDeque::new(),
            queued: VecDeque::new(),
            waiting: Vec::new(),
            over: None,
            is_leaving: false,
            task: None,
            is_awake: true,
            accepted: VecDeque::new(),
            cancelled: Vec::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// The task is here, and will look at everything before it sleeps.
    pub(super) fn awake(&mut self, cx: &Context<'_>) {
        keep(&mut self.task, cx.waker());
        self.is_awake = true;
    }

    /// Writes everything, and lets the task sleep: whoever has more to write wakes it.
    pub(super) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let written = self.out.poll_write(io, cx);
        if self.out.has_written() {
            self.sent_id = self.last_id;
        }
        if self.out.has_room() {
            self.wake_writers();
        }
        self.is_awake = false;
        written.map_err(Error::from)
    }

    /// Says why the connection ends, if the other end reads at all.
    pub(super) fn refuse<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        fault: Fault,
    ) -> Error {
        let (reason, error) = fault.into_error();
        let last = match self.role {
            Role::Client => 0,
            Role::Server => self.last_id,
        };
        frame::go_away(self.out.buf(), last, reason);
        let _ = self.poll_write(io, cx);
        error
    }

    pub(super) fn wake(&mut self) {
        if !std::mem::replace(&mut self.is_awake, true)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    /// A new stream, held once.
    pub(super) fn open(&mut self, id: u32) -> Key {
        let key = self.streams.open(id);
        let stream = &mut self.streams[key];
        stream.handles = 1;
        stream.send_window = self.initial_window;
        stream.receive_window = i64::from(STREAM_WINDOW);
        key
    }

    /// Ready if more may be written.
    pub(super) fn poll_room(&mut self, cx: &Context<'_>, key: Key) -> Poll<()> {
        if self.out.has_room() {
            return Poll::Ready(());
        }
        self.queue(cx, key);
        Poll::Pending
    }

    pub(super) fn queue(&mut self, cx: &Context<'_>, key: Key) {
        let stream = &mut self.streams[key];
        keep(&mut stream.writer, cx.waker());
        if !std::mem::replace(&mut stream.is_queued, true) {
            self.queued.push_back(key);
        }
    }

    /// There is room again on the connection. First come, first served.
    pub(super) fn wake_writers(&mut self) {
        for key in std::mem::take(&mut self.queued) {
            // It may be over, and its place gone.
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_queued = false;
                stream.wake_writer();
            }
        }
        self.wake_waiting();
    }

    /// Waits until another stream may be opened.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        self.waiting.push(cx.waker().clone());
    }

    fn wake_waiting(&mut self) {
        if self.over.is_none() && self.streams.count() >= self.max_streams {
            return;
        }
        self.waiting.drain(..).for_each(Waker::wake);
    }

    pub(super) fn sent_all(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        stream.sent_all = true;
        if stream.received_all {
            self.close(key);
        }
    }

    pub(super) fn received_all(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        stream.received_all = true;
        if stream.sent_all {
            self.close(key);
        }
    }

    pub(super) fn close(&mut self, key: Key) {
        self.streams.close(key);
        if !self.waiting.is_empty() {
            self.wake_waiting();
        }
        if self.is_leaving || self.over.is_some() {
            self.wake();
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, key: Key, reason: Reason) {
        let stream = &self.streams[key];
        if stream.is_open {
            let id = stream.id;
            self.close(key);
            self.reset_id(id, reason);
        }
    }

    /// Resets a stream that nothing is known of.
    pub(super) fn reset_id(&mut self, id: u32, reason: Reason) {
        frame::reset(self.out.buf(), id, reason);
        if self.resets.len() == REMEMBERED {
            self.resets.pop_front();
        }
        self.resets.push_back(id);
        self.wake();
    }

    /// Whether no such stream was ever opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last_id || id.is_multiple_of(2)
    }

    /// Whether frames may still come for a stream that is closed: they were on their way when it was reset. What a
    /// client hears of its past is nothing to it.
    pub(super) fn may_come_late(&self, id: u32) -> bool {
        self.role == Role::Client || self.resets.contains(&id)
    }

    /// The stream is broken for whoever holds it.
    pub(super) fn fail(&mut self, key: Key, error: Error) {
        self.close(key);
        let stream = &mut self.streams[key];
        stream.error = Some(error);
        stream.wake_reader();
        stream.wake_writer();
        if self.role == Role::Server {
            self.cancelled.push(key);
        }
    }

    /// All streams above this one are broken, and there will be no more.
    pub(super) fn fail_above(&mut self, id: u32, error: &Error) {
        self.over.get_or_insert_with(|| error.clone());
        for key in self.streams.keys() {
            if self.streams[key].id > id {
                self.fail(key, error.clone());
            }
        }
        self.wake_waiting();
        self.wake();
    }

    /// The connection is over. Calls of which nothing has left can be sent on another.
    pub(super) fn end(&mut self, error: &Error) {
        self.fail_above(self.sent_id, &Error::NotTaken(Reason::NO_ERROR));
        self.fail_above(0, error);
    }

    /// Bytes were read: there is room for as many again.
    pub(super) fn took(&mut self, key: Option<Key>, n: usize) {
        self.taken += n as i64;
        if self.taken >= i64::from(CONNECTION_WINDOW / 2) {
            let by = std::mem::take(&mut self.taken);
            self.receive_window += by;
            frame::window_update(self.out.buf(), 0, by as u32);
            self.wake();
        }
        let Some(key) = key else { return };
        let stream = &mut self.streams[key];
        stream.taken += n as i64;
        let is_half = stream.taken >= i64::from(STREAM_WINDOW / 2);
        if is_half && stream.is_open && !stream.received_all {
            let by = std::mem::take(&mut stream.taken);
            stream.receive_window += by;
            frame::window_update(self.out.buf(), stream.id, by as u32);
            self.wake();
        }
    }

    /// Nobody reads the rest of the stream.
    pub(super) fn unread(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        stream.is_unread = true;
        stream.trailers = None;
        let left = stream.data.drain(..).map(|data| data.len()).sum();
        self.took(None, left);
        self.release(key);
    }

    /// One holder less. A stream that nobody holds is ended.
    pub(super) fn release(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        stream.handles -= 1;
        if stream.handles > 0 {
            return;
        }
        // An answer may be complete before its request is (RFC 9113, 8.1).
        let is_answered = self.role == Role::Server && stream.sent_all;
        let reason = match is_answered {
            true => Reason::NO_ERROR,
            false => Reason::CANCEL,
        };
        self.reset(key, reason);
        self.streams.free(key);
    }
}
