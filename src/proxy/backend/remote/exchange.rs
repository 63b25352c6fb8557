//! One call on an HTTP/2 connection, carried by whoever carries the call.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio_util::task::AbortOnDropHandle;

use crate::grpc::{Body, Request};
use crate::http2::client::Sender;
use crate::http2::{Error, Incoming, Outgoing, Reason};

/// An answer under way. Dropping it cancels the call.
#[derive(Debug)]
pub struct Answer {
    receive: Incoming,
    /// Sends what is left of the request.
    _sending: Option<AbortOnDropHandle<()>>,
}

/// What went wrong.
#[derive(Debug)]
pub enum Fault {
    /// The runtime closed the connection before it looked at the call. It is given back.
    NotSent(Box<Request>, Error),
    /// The call was sent, and then the stream or the connection broke.
    Broken(Error),
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// See [`Fault`].
pub async fn exchange(sender: &Sender, request: Request) -> Result<http::Response<Answer>, Fault> {
    let (head, mut body) = request.into_parts();
    let is_empty = body.is_end_stream();
    let not_sent = |head, body, error| {
        let request = Request::from_parts(head, body);
        Fault::NotSent(Box::new(request), error)
    };
    let mut started = match sender.start(&head, is_empty).await {
        Ok(started) => started,
        Err(error) => return Err(not_sent(head, body, error)),
    };
    // Nearly always all of the request is here. It is kept until there is an answer: it may have to be sent again.
    let whole = body.take_whole();
    let can_repeat = is_empty || whole.is_some();
    let sending = started.outgoing.take().and_then(|out| match &whole {
        Some(whole) => send_whole(out, whole.clone()),
        None => begin(send(std::mem::take(&mut body), out)),
    });
    match started.answer().await {
        Ok(response) => Ok(response.map(|receive| Answer {
            receive,
            _sending: sending,
        })),
        Err(error @ Error::NotTaken(_)) if can_repeat => {
            let body = whole.map_or(body, Body::full);
            Err(not_sent(head, body, error))
        }
        Err(error) => Err(Fault::Broken(error)),
    }
}

/// Sends at once what the other end has room for, and the rest from a task.
fn begin(sending: impl Future<Output = ()> + Send + 'static) -> Option<AbortOnDropHandle<()>> {
    let mut sending = Box::pin(sending);
    match sending.as_mut().now_or_never() {
        Some(()) => None,
        None => Some(AbortOnDropHandle::new(tokio::spawn(sending))),
    }
}

/// The same for a request that is one piece, as nearly all are.
fn send_whole(mut out: Outgoing, mut data: Bytes) -> Option<AbortOnDropHandle<()>> {
    let sent = poll_fn(|cx| out.poll_data(cx, &mut data, true)).now_or_never();
    match sent {
        Some(_) => None,
        None => begin(send_last(out, data)),
    }
}

/// Sends the last piece of a body.
async fn send_last(mut out: Outgoing, mut data: Bytes) {
    // An error here is that of the stream; the receiving half hears of it too, and tells.
    let _ = poll_fn(|cx| out.poll_data(cx, &mut data, true)).await;
}

/// Sends a body, as fast as the other end takes it.
async fn send(mut body: Body, mut out: Outgoing) {
    loop {
        let frame = {
            let next = pin!(body.frame());
            match until_closed(&mut out, next).await {
                Some(frame) => frame,
                None => return,
            }
        };
        let (mut data, is_last) = match frame {
            None => (Bytes::new(), true),
            // The caller broke off; so do we.
            Some(Err(_)) => return out.reset(Reason::CANCEL),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => (data, body.is_end_stream()),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => return out.trailers(&trailers),
                    Err(_) => continue,
                },
            },
        };
        // An error here is that of the stream; the receiving half hears of it too, and tells.
        let sent = poll_fn(|cx| out.poll_data(cx, &mut data, is_last)).await;
        if is_last || sent.is_err() {
            return;
        }
    }
}

/// The next piece of the body, or `None` if the other end wants no more.
async fn until_closed<F: Future>(out: &mut Outgoing, next: Pin<&mut F>) -> Option<F::Output> {
    let mut next = next;
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => out.poll_closed(cx).map(|()| None),
    })
    .await
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.receive).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
