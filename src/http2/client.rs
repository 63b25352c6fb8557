//! The end that asks.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Response, Version, request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::core::{Role, Shared};
use super::error::{Error, Reason};
use super::incoming::{Incoming, Outgoing};
use super::receive::Receiver;
use super::{CONNECTION_WINDOW, MAX_HEADER_LIST, STREAM_WINDOW, frame};

/// Sends calls on a connection. When the last of its clones and all answers are gone, the connection closes.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Guard>);

#[derive(Debug)]
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.is_leaving = true;
        core.wake();
    }
}

/// A call under way: what reads its answer, and what sends the rest of the request.
#[derive(Debug)]
pub struct Started {
    incoming: Incoming,
    /// Unless the head was all.
    pub outgoing: Option<Outgoing>,
}

impl Sender {
    /// Sends the head of a request.
    ///
    /// # Errors
    /// Nothing was sent, because the connection takes no more calls.
    pub async fn start(&self, head: &request::Parts, is_end: bool) -> Result<Started, Error> {
        let shared = &self.0.0;
        let key = poll_fn(|cx| shared.lock().poll_open(cx, head, is_end)).await?;
        let outgoing = (!is_end).then(|| Outgoing::new(Arc::clone(shared), key));
        Ok(Started {
            incoming: Incoming::new(Arc::clone(shared), key),
            outgoing,
        })
    }
}

impl Started {
    /// Waits for the head of the answer.
    ///
    /// # Errors
    /// If the stream broke. After [`Error::NotTaken`] the call may be sent again on another connection.
    pub async fn answer(self) -> Result<Response<Incoming>, Error> {
        let (status, headers) = poll_fn(|cx| self.incoming.poll_head(cx)).await?;
        let mut response = Response::new(self.incoming);
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_2;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Carries the bytes of a connection. Resolves when it is over: with an error if that was not wanted.
#[derive(Debug)]
pub struct Connection<T> {
    io: T,
    receiver: Receiver,
    shared: Arc<Shared>,
}

/// Begins a connection. Calls may be sent at once; they leave when the connection is polled.
pub fn connect<T: AsyncRead + AsyncWrite + Unpin>(io: T) -> (Sender, Connection<T>) {
    let shared = Shared::new(Role::Client);
    let settings = [
        (frame::ENABLE_PUSH, 0),
        (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (frame::MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
    ];
    {
        let mut core = shared.lock();
        let out = core.out.buf();
        out.extend_from_slice(frame::PREFACE);
        frame::settings(out, &settings);
        frame::window_update(out, 0, CONNECTION_WINDOW - 65_535);
    }
    let sender = Sender(Arc::new(Guard(Arc::clone(&shared))));
    let connection = Connection {
        io,
        receiver: Receiver::new(b""),
        shared,
    };
    (sender, connection)
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.lock().awake(cx);
        while let Poll::Ready(read) = self.receiver.poll_read(&mut self.io, cx) {
            if !read? {
                return Poll::Ready(Err(Error::Closed));
            }
            let mut core = self.shared.lock();
            if let Err(fault) = self.receiver.frames(&mut core) {
                return Poll::Ready(Err(core.refuse(&mut self.io, cx, fault)));
            }
        }
        let mut core = self.shared.lock();
        let is_over = core.streams.count() == 0 && (core.is_leaving || core.over.is_some());
        if is_over {
            frame::go_away(core.out.buf(), 0, Reason::NO_ERROR);
        }
        // What does not leave now leaves later.
        let _ = core.poll_write(&mut self.io, cx)?;
        match is_over {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Connection<T> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let over = std::task::ready!(self.poll_turns(cx));
        let why = over.clone().err().unwrap_or(Error::Closed);
        self.shared.lock().end(&why);
        Poll::Ready(over)
    }
}

impl<T> Drop for Connection<T> {
    fn drop(&mut self) {
        self.shared.lock().end(&Error::Closed);
    }
}
