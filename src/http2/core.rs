//! What the task of a connection and those who hold its streams share: the streams, flow control, and what is to be
//! written. Whoever writes appends to one buffer and wakes the task once; it leaves with one system call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, StatusCode, request};

use super::error::{Error, Reason};
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
    /// How many streams the server takes at once.
    pub(super) max_streams: usize,
    /// What the other end may still send, in bytes.
    pub(super) receive_window: i64,
    /// What was read and not given back to that window yet.
    taken: i64,
    /// The newest stream.
    pub(super) last_id: u32,
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

    /// The task sleeps; whoever has something to write wakes it.
    pub(super) fn asleep(&mut self) {
        self.is_awake = false;
    }

    pub(super) fn wake(&mut self) {
        if !std::mem::replace(&mut self.is_awake, true)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    /// Opens a stream and sends the head of a request.
    pub(super) fn poll_open(
        &mut self,
        cx: &Context<'_>,
        head: &request::Parts,
        is_end: bool,
    ) -> Poll<Result<Key, Error>> {
        if let Some(error) = &self.over {
            return Poll::Ready(Err(error.clone()));
        }
        if self.streams.count() >= self.max_streams || !self.out.has_room() {
            self.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        let id = if self.last_id == 0 { 1 } else { self.last_id + 2 };
        if id > 0x7fff_ffff {
            return Poll::Ready(Err(Error::NotTaken(Reason::NO_ERROR)));
        }
        self.last_id = id;
        let key = self.open(id);
        self.block(id, is_end, |encoder, out| {
            request(encoder, out, head);
            fields(encoder, out, &head.headers);
        });
        if is_end {
            self.sent_all(key);
        }
        Poll::Ready(Ok(key))
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

    fn queue(&mut self, cx: &Context<'_>, key: Key) {
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

    fn wake_waiting(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Sends the head of an answer.
    pub(super) fn respond(
        &mut self,
        key: Key,
        status: StatusCode,
        headers: &HeaderMap,
        is_end: bool,
    ) {
        let stream = &self.streams[key];
        if !stream.is_open || stream.sent_all {
            return;
        }
        self.block(stream.id, is_end, |encoder, out| {
            match [200, 204, 206, 304, 400, 404, 500].binary_search(&status.as_u16()) {
                Ok(at) => Encoder::indexed(out, 8 + at),
                Err(_) => Encoder::literal(out, 8, status.as_str().as_bytes()),
            }
            fields(encoder, out, headers);
        });
        if is_end {
            self.sent_all(key);
        }
    }

    /// Sends trailers, and with them the end.
    pub(super) fn trailers(&mut self, key: Key, trailers: &HeaderMap) {
        let stream = &self.streams[key];
        if stream.is_open && !stream.sent_all {
            self.block(stream.id, true, |encoder, out| {
                fields(encoder, out, trailers);
            });
            self.sent_all(key);
        }
    }

    /// Writes a header block.
    fn block(&mut self, id: u32, is_end: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let out = self.out.buf();
        let at = out.len();
        let end = if is_end { frame::END_STREAM } else { 0 };
        frame::head(out, 0, frame::HEADERS, end, id);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let begin = at + frame::HEAD;
        let len = out.len() - begin;
        if len <= frame::MAX_PAYLOAD {
            let [.., a, b, c] = len.to_be_bytes();
            out[at..at + 3].copy_from_slice(&[a, b, c]);
            out[at + 4] |= frame::END_HEADERS;
        } else {
            let block = out.split_off(begin);
            out.truncate(at);
            let last = len.div_ceil(frame::MAX_PAYLOAD) - 1;
            for (n, part) in block.chunks(frame::MAX_PAYLOAD).enumerate() {
                let (kind, flags) = match n {
                    0 => (frame::HEADERS, end),
                    n if n == last => (frame::CONTINUATION, frame::END_HEADERS),
                    _ => (frame::CONTINUATION, 0),
                };
                frame::head(out, part.len(), kind, flags, id);
                out.extend_from_slice(part);
            }
        }
        self.wake();
    }

    /// Sends data as far as there is room; ready once all is sent, or if the stream broke.
    pub(super) fn poll_data(
        &mut self,
        cx: &Context<'_>,
        key: Key,
        data: &mut Bytes,
        is_end: bool,
    ) -> Poll<Result<(), Error>> {
        loop {
            let stream = &mut self.streams[key];
            if !stream.is_open || stream.sent_all {
                return Poll::Ready(Err(stream.error.clone().unwrap_or(Error::Closed)));
            }
            let room = stream.send_window.min(self.send_window);
            let room = usize::try_from(room).unwrap_or(0).min(frame::MAX_PAYLOAD);
            let has_room = (room > 0 || data.is_empty()) && self.out.has_room();
            if !has_room {
                if stream.send_window > 0 {
                    self.queue(cx, key);
                } else {
                    keep(&mut stream.writer, cx.waker());
                }
                return Poll::Pending;
            }
            let part = data.split_to(data.len().min(room));
            let is_all = data.is_empty();
            stream.send_window -= part.len() as i64;
            self.send_window -= part.len() as i64;
            let flags = if is_all && is_end { frame::END_STREAM } else { 0 };
            frame::head(self.out.buf(), part.len(), frame::DATA, flags, stream.id);
            self.out.data(part);
            self.wake();
            if is_all {
                if is_end {
                    self.sent_all(key);
                }
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn sent_all(&mut self, key: Key) {
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
            frame::reset(self.out.buf(), id, reason);
            if self.resets.len() == REMEMBERED {
                self.resets.pop_front();
            }
            self.resets.push_back(id);
            self.close(key);
            self.wake();
        }
    }

    /// Whether frames may still come for a stream that was reset here.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.resets.contains(&id)
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

fn request(encoder: &mut Encoder, out: &mut Vec<u8>, head: &request::Parts) {
    match head.method {
        Method::POST => Encoder::indexed(out, 3),
        Method::GET => Encoder::indexed(out, 2),
        _ => Encoder::literal(out, 2, head.method.as_str().as_bytes()),
    }
    match head.uri.scheme() {
        None => Encoder::indexed(out, 6),
        Some(scheme) if *scheme == Scheme::HTTP => Encoder::indexed(out, 6),
        Some(scheme) => Encoder::literal(out, 6, scheme.as_str().as_bytes()),
    }
    match head.uri.path_and_query() {
        Some(path) => encoder.path(out, path),
        None => Encoder::indexed(out, 4),
    }
    if let Some(authority) = head.uri.authority() {
        encoder.authority(out, authority);
    }
}

fn fields(encoder: &mut Encoder, out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        encoder.header(out, name, value);
    }
}
