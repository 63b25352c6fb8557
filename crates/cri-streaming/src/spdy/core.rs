//! State shared by the driver and the users of streams.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;

use super::error::{CloseReason, MalformedFrame, SpdyCounters};
use super::frame::{self, ResetStatus};
use super::headers::{HeaderDeflater, HeaderInflater, StreamHeaders};
use super::limits::SpdyLimits;
use super::stream_state::{IncomingEnd, OutgoingEnd, StreamState};

/// Maximum bytes of replies to the peer's frames that wait to be sent. Beyond that, the connection is not read, because
/// the peer does not read the replies.
const MAX_REPLIES_LEN: usize = 64 * 1024;

/// Id of a PING that the peer has not sent: the peer's ids are odd, starting with 1.
const HEARTBEAT_PING_ID: u32 = u32::MAX;

/// The core behind its lock.
#[derive(Debug)]
pub(super) struct SharedConnection(Mutex<ConnectionState>);

impl SharedConnection {
    pub(super) fn new(limits: SpdyLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ConnectionState::new(limits))))
    }

    /// Held for short operations only, never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) limits: SpdyLimits,
    pub(super) states: HashMap<u32, StreamState>,
    /// The last stream that the peer has opened or tried to open.
    pub(super) last_id: u32,
    pub(super) inflater: HeaderInflater,
    pub(super) deflater: HeaderDeflater,
    /// Streams that have not been accepted yet; `None` if no more will be.
    opened: Option<VecDeque<(u32, StreamHeaders)>>,
    acceptor: Option<Waker>,
    /// Streams with something to send, in round-robin order.
    pub(super) send_queue: VecDeque<u32>,
    /// Streams that wait for capacity to send; see `flow_control`.
    pub(super) capacity_queue: VecDeque<u32>,
    /// Control frames, which are sent before any data.
    pub(super) replies: Vec<u8>,
    /// Bytes of heartbeats that wait to be sent.
    heartbeats: usize,
    /// The task that waits until too much is unread.
    watcher: Option<Waker>,
    /// Set if the peer opens no more streams.
    pub(super) has_gone_away: bool,
    /// Why the shutdown has started.
    closing: Option<CloseReason>,
    is_ended: bool,
    driver: Option<Waker>,
    pub(super) counters: SpdyCounters,
}

impl ConnectionState {
    fn new(limits: SpdyLimits) -> Self {
        Self {
            limits,
            states: HashMap::new(),
            last_id: 0,
            inflater: HeaderInflater::new(),
            deflater: HeaderDeflater::default(),
            opened: Some(VecDeque::new()),
            acceptor: None,
            send_queue: VecDeque::new(),
            capacity_queue: VecDeque::new(),
            replies: Vec::new(),
            heartbeats: 0,
            watcher: None,
            has_gone_away: false,
            closing: None,
            is_ended: false,
            driver: None,
            counters: SpdyCounters::default(),
        }
    }

    // === the driver's side

    pub(super) fn set_driver(&mut self, cx: &Context<'_>) {
        match &mut self.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            driver => *driver = Some(cx.waker().clone()),
        }
    }

    pub(super) fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Returns whether so much data is unread that the connection is not read.
    pub(super) fn is_full(&self) -> bool {
        self.counters.unread >= self.limits.unread
    }

    /// Returns whether the peer may send more.
    pub(super) fn may_read(&self) -> bool {
        !self.is_full() && self.replies.len() < MAX_REPLIES_LEN
    }

    /// Ready when too much is unread.
    pub(super) fn poll_full(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_full() {
            return Poll::Ready(());
        }
        self.watcher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Wakes the watcher if too much is unread.
    pub(super) fn wake_watcher(&mut self) {
        if self.is_full()
            && let Some(watcher) = self.watcher.take()
        {
            watcher.wake();
        }
    }

    /// Queues the reply to a PING that was never sent, unless other data is queued.
    pub(super) fn heartbeat(&mut self) {
        if self.is_ended || self.is_closing() || !self.replies.is_empty() {
            return;
        }
        frame::ping(&mut self.replies, HEARTBEAT_PING_ID);
        self.heartbeats += self.replies.len();
        self.wake_driver();
    }

    /// Records that bytes were sent. Returns whether they contained more than heartbeats.
    pub(super) fn sent(&mut self, n: usize) -> bool {
        self.counters.bytes_out += n as u64;
        let heartbeats = self.heartbeats.min(n);
        self.heartbeats -= heartbeats;
        n > heartbeats
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub(super) fn is_malformed(&self) -> bool {
        matches!(self.closing, Some(CloseReason::Malformed(_)))
    }

    /// Starts the shutdown, unless it has started: queued data is still sent, then unfinished streams are reset.
    pub(super) fn close(&mut self, reason: CloseReason) {
        if self.is_ended || self.closing.is_some() {
            return;
        }
        if matches!(reason, CloseReason::ClientGone) {
            self.lose();
        }
        self.closing = Some(reason);
        let ids: Vec<_> = self.states.keys().copied().collect();
        for id in ids {
            self.finish(id, OutgoingEnd::Reset(ResetStatus::Cancel));
        }
        self.end_halves();
        self.wake_driver();
    }

    /// Closes the connection for reading and writing. Returns the reason if the shutdown had already started.
    pub(super) fn end(&mut self) -> Option<CloseReason> {
        self.is_ended = true;
        self.end_halves();
        for state in self.states.values_mut() {
            self.counters.unsent -= state.end_outgoing();
        }
        self.capacity_queue.clear();
        self.send_queue.clear();
        self.replies = Vec::new();
        self.driver = None;
        self.closing.take()
    }

    /// Handles the loss of the connection. After a GOAWAY, the streams of the peer are complete.
    pub(super) fn lose(&mut self) {
        if !self.has_gone_away {
            for state in self.states.values_mut() {
                state.end_incoming(IncomingEnd::Lost);
            }
        }
    }

    /// Ends both directions of all streams.
    fn end_halves(&mut self) {
        for state in self.states.values_mut() {
            state.end_incoming(IncomingEnd::All);
            state.wake_writer();
        }
        self.wake_acceptor();
    }

    /// Resets the stream with the most unread data.
    pub(super) fn reset_stalled(&mut self) {
        let most = self.states.iter_mut().max_by_key(|(_, state)| state.unread);
        let Some((&id, state)) = most else {
            return;
        };
        state.received = Some(IncomingEnd::Stalled);
        state.wake_reader();
        self.drop_incoming(id);
        self.counters.streams_stalled += 1;
        self.end_outgoing(id);
        self.reply_reset(id, ResetStatus::Cancel);
        self.forget(id);
    }

    pub(super) fn malformed(&mut self, malformed: MalformedFrame) {
        self.close(CloseReason::Malformed(malformed));
    }

    // === new streams

    /// Returns whether another stream may be opened.
    pub(super) fn takes_streams(&self) -> bool {
        !self.has_gone_away && self.opened.is_some() && self.states.len() < self.limits.streams
    }

    pub(super) fn open(&mut self, id: u32, headers: StreamHeaders, state: StreamState) {
        self.states.insert(id, state);
        self.counters.streams += 1;
        if let Some(opened) = &mut self.opened {
            opened.push_back((id, headers));
        }
        self.wake_acceptor();
    }

    fn wake_acceptor(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.wake();
        }
    }

    /// Returns the next stream that was opened; `None` at the end of the connection.
    pub(super) fn poll_opened(&mut self, cx: &Context<'_>) -> Poll<Option<(u32, StreamHeaders)>> {
        if let Some(next) = self.opened.as_mut().and_then(VecDeque::pop_front) {
            return Poll::Ready(Some(next));
        }
        if self.is_ended || self.is_closing() {
            return Poll::Ready(None);
        }
        self.acceptor = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Refuses further streams.
    pub(super) fn stop_accepting(&mut self) {
        for (id, _) in self.opened.take().into_iter().flatten() {
            self.drop_reader(id);
            self.drop_writer(id);
        }
    }

    /// Returns whether all streams are finished.
    pub(super) fn are_streams_over(&self) -> bool {
        self.states.values().all(StreamState::is_over)
    }

    /// Removes a stream that is finished and no longer has a user.
    pub(super) fn forget(&mut self, id: u32) {
        if self.states.get(&id).is_some_and(StreamState::is_forgotten) {
            self.states.remove(&id);
        }
    }

    // === the readers' side

    /// Returns the next piece of a stream's data; `None` if there is none yet.
    pub(super) fn take(&mut self, id: u32) -> Option<BytesMut> {
        self.states.get_mut(&id)?.take()
    }

    /// Releases the piece that the reader has taken.
    pub(super) fn let_go(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            let len = state.let_go();
            self.less_unread(len);
        }
    }

    fn less_unread(&mut self, len: usize) {
        let was_full = self.is_full();
        self.counters.unread -= len;
        if was_full && !self.is_full() {
            self.wake_driver();
        }
    }

    /// Drops unread data of a stream.
    fn drop_incoming(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            let taken = state.let_go();
            let dropped = state.drop_incoming();
            self.counters.data_discarded += dropped as u64;
            self.less_unread(taken + dropped);
        }
    }

    /// Handles a dropped reader: further data is drained.
    pub(super) fn drop_reader(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            state.has_reader = false;
            state.reader = None;
            self.drop_incoming(id);
            self.forget(id);
        }
    }

    // === the writers' side

    /// Returns the stream if it can still be written to.
    pub(super) fn writable(&mut self, id: u32) -> Option<&mut StreamState> {
        if self.is_ended || self.is_closing() {
            return None;
        }
        let state = self.states.get_mut(&id)?;
        (state.last.is_none() && !state.is_sent).then_some(state)
    }

    /// Ends the server's half of a stream after the queued data, unless it has ended.
    pub(super) fn finish(&mut self, id: u32, last: OutgoingEnd) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        if state.last.is_none() && !state.is_sent {
            state.last = Some(last);
            self.queue(id);
        }
    }

    /// Ends both halves of a stream, after the data that is queued to be sent.
    pub(super) fn reset(&mut self, id: u32) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        if !state.is_sent {
            state.last = Some(OutgoingEnd::Reset(ResetStatus::Cancel));
            self.queue(id);
        } else if state.received.is_none() {
            // The server's half has already ended; this also ends the peer's half.
            state.end_incoming(IncomingEnd::All);
            self.reply_reset(id, ResetStatus::Cancel);
            self.wake_driver();
        }
    }

    /// Handles a dropped writer.
    pub(super) fn drop_writer(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            state.has_writer = false;
            state.writer = None;
            self.leave(id);
            self.finish(id, OutgoingEnd::Reset(ResetStatus::Cancel));
            self.forget(id);
        }
    }
}
