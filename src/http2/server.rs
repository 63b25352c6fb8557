//! The end that answers.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use super::calls::{Call, Ready};
use super::control::LEAVING;
use super::core::{Role, Shared};
use super::error::{Error, Fault, Reason};
use super::incoming::Incoming;
use super::receive::Receiver;
use super::stream::Key;
use super::{BoxError, CONNECTION_WINDOW, MAX_HEADER_LIST, STREAM_WINDOW, frame};

/// The number that no stream is above.
const NO_LAST: u32 = 0x7fff_ffff;

/// How far the connection is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// The other end was told, and may have begun calls before it heard.
    Told,
    /// What is there is the last.
    Last,
}

/// A connection of a caller, and its calls. Driven by [`Connection::poll`].
pub struct Connection<T, S, B>
where
    S: Service<Request<Incoming>>,
{
    io: T,
    receiver: Receiver,
    shared: Arc<Shared>,
    service: S,
    /// By the keys of their streams.
    calls: Vec<Call<S::Future, B>>,
    ready: Arc<Ready>,
    /// Keys of calls that can go on; kept for its room.
    keys: Vec<Key>,
    leaving: Leaving,
}

impl<T, S: Service<Request<Incoming>>, B> fmt::Debug for Connection<T, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl<T, S, B> Connection<T, S, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>, Error = BoxError>,
    B: Body<Data = Bytes, Error = BoxError>,
{
    /// Serves what comes, at most so many calls at a time: more are refused before the service hears of them.
    pub fn new(io: T, service: S, max_streams: u32) -> Self {
        let shared = Shared::new(Role::Server);
        let settings = [
            (frame::MAX_CONCURRENT_STREAMS, max_streams),
            (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (frame::MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
        ];
        {
            let mut core = shared.lock();
            core.max_streams = max_streams as usize;
            frame::settings(core.out.buf(), &settings);
            frame::window_update(core.out.buf(), 0, CONNECTION_WINDOW - 65_535);
        }
        Self {
            io,
            receiver: Receiver::new(frame::PREFACE),
            shared,
            service,
            calls: Vec::new(),
            ready: Arc::default(),
            keys: Vec::new(),
            leaving: Leaving::No,
        }
    }

    /// Takes no more calls, and ends when those that are there have ended. [`Connection::poll`] does the work.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Told;
            let mut core = self.shared.lock();
            frame::go_away(core.out.buf(), NO_LAST, Reason::NO_ERROR);
            frame::ping(core.out.buf(), 0, LEAVING);
        }
    }

    /// Goes on. Ready when the connection is over.
    ///
    /// # Errors
    /// If the caller broke the rules or the connection broke.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            self.shared.lock().awake(cx);
            let mut has_read = false;
            if let Poll::Ready(read) = self.receiver.poll_read(&mut self.io, cx) {
                has_read = true;
                if !read? {
                    return Poll::Ready(Ok(()));
                }
                if let Err(fault) = self.receive() {
                    let error = self.shared.lock().refuse(&mut self.io, cx, fault);
                    return Poll::Ready(Err(error));
                }
            }
            self.start(cx);
            self.go_on(cx);
            let mut core = self.shared.lock();
            let is_written = core.poll_write(&mut self.io, cx)?.is_ready();
            let is_idle = is_written && core.streams.count() == 0;
            drop(core);
            if is_idle && self.leaving == Leaving::Last {
                return Poll::Ready(Ok(()));
            }
            if has_read {
                continue;
            }
            // One turn at a time: others want theirs.
            if self.ready.asleep() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }

    fn receive(&mut self) -> Result<(), Fault> {
        let mut core = self.shared.lock();
        self.receiver.frames(&mut core)?;
        if self.receiver.is_left && self.leaving == Leaving::Told {
            self.leaving = Leaving::Last;
            core.over = Some(Error::Closed);
            let last = core.last_id;
            frame::go_away(core.out.buf(), last, Reason::NO_ERROR);
        }
        let cancelled = std::mem::take(&mut core.cancelled);
        drop(core);
        for key in cancelled {
            if self.calls.get_mut(key).is_some_and(Call::stop) {
                self.shared.lock().release(key);
            }
        }
        Ok(())
    }

    /// Hands new requests to the service.
    fn start(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some((key, request)) = self.shared.lock().accepted.pop_front() else {
                return;
            };
            match self.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    let mut core = self.shared.lock();
                    core.reset(key, Reason::REFUSED_STREAM);
                    core.release(key);
                    continue;
                }
                Poll::Pending => {
                    let mut core = self.shared.lock();
                    return core.accepted.push_front((key, request));
                }
            }
            let is_reset = {
                let mut core = self.shared.lock();
                let stream = &mut core.streams[key];
                stream.handles += 1;
                stream.error.is_some()
            };
            let incoming = Incoming::new(Arc::clone(&self.shared), key);
            let future = self.service.call(request.map(|()| incoming));
            if is_reset {
                // The caller left before anybody looked. The service knows of the call, and that is all.
                drop(future);
                self.shared.lock().release(key);
                continue;
            }
            while self.calls.len() <= key {
                self.calls.push(Call::new(self.calls.len(), &self.ready));
            }
            self.calls[key].start(future);
            self.run(key);
        }
    }

    /// Lets the calls go on that can.
    fn go_on(&mut self, cx: &Context<'_>) {
        let mut keys = std::mem::take(&mut self.keys);
        self.ready.take(cx, &mut keys);
        for key in keys.drain(..) {
            self.run(key);
        }
        self.keys = keys;
    }

    fn run(&mut self, key: Key) {
        if let Some(call) = self.calls.get_mut(key)
            && call.poll(&self.shared).is_ready()
        {
            call.stop();
            self.receiver.was_answered();
            let mut core = self.shared.lock();
            core.release(key);
            let places = core.streams.places();
            drop(core);
            if self.calls.len() > places {
                self.calls.truncate(places);
                self.calls.shrink_to_fit();
            }
        }
    }
}

impl<T, S: Service<Request<Incoming>>, B> Drop for Connection<T, S, B> {
    fn drop(&mut self) {
        // The calls go first: what they hold below is given up with them.
        self.calls.clear();
        self.shared.lock().end(&Error::Closed);
    }
}
