//! One call on an HTTP/2 connection, straight on h2.
//!
//! hyper's client hands each request to a task of the connection and each answer back through another: two more turns of
//! the scheduler per call than the bytes need. Here the task that carries the call also sends it and receives its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio_util::task::AbortOnDropHandle;

use crate::wire::{Body, BoxError, Request};

/// An answer under way. Dropping it cancels the call.
#[derive(Debug)]
pub struct Answer {
    receive: RecvStream,
    data_ended: bool,
    trailers_ended: bool,
    /// Sends what is left of the request.
    _sending: Option<AbortOnDropHandle<()>>,
}

/// What went wrong.
#[derive(Debug)]
pub enum Fault {
    /// The connection takes no more calls; this one was not sent. It is given back.
    NotSent(Box<Request>, h2::Error),
    /// The call was sent, and then the stream or the connection broke.
    Broken(h2::Error),
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// See [`Fault`].
pub async fn exchange(
    sender: SendRequest<Bytes>,
    request: Request,
) -> Result<http::Response<Answer>, Fault> {
    let mut sender = match sender.ready().await {
        Ok(sender) => sender,
        Err(error) => return Err(Fault::NotSent(Box::new(request), error)),
    };
    let (head, body) = request.into_parts();
    let is_empty = body.is_end_stream();
    let head = http::Request::from_parts(head, ());
    let (response, stream) = sender.send_request(head, is_empty).map_err(Fault::Broken)?;
    let sending = if is_empty { None } else { start(body, stream) };
    let response = response.await.map_err(Fault::Broken)?;
    Ok(response.map(|receive| Answer {
        data_ended: receive.is_end_stream(),
        trailers_ended: receive.is_end_stream(),
        receive,
        _sending: sending,
    }))
}

/// A request of up to this many bytes is handed to the connection at once, and waits there if there is no room for it on
/// the way. It is the room that every stream begins with (RFC 9113, section 6.9.2).
const AT_ONCE: usize = 65_535;

/// Sends the body at once if it is all there and small, as it nearly always is, and else from a task.
fn start(mut body: Body, mut stream: SendStream<Bytes>) -> Option<AbortOnDropHandle<()>> {
    if let Some(whole) = body.take_whole() {
        if whole.len() <= AT_ONCE {
            // An error here is that of the stream; the receiving half hears of it too, and tells.
            let _ = stream.send_data(whole, true);
            return None;
        }
        body = Body::full(whole);
    }
    let mut sending = Box::pin(send(body, stream));
    match sending.as_mut().now_or_never() {
        Some(()) => None,
        None => Some(AbortOnDropHandle::new(tokio::spawn(sending))),
    }
}

/// Sends a body, as fast as the other end takes it.
async fn send(mut body: Body, mut stream: SendStream<Bytes>) {
    loop {
        let frame = {
            let next = pin!(body.frame());
            match until_reset(&mut stream, next).await {
                Some(frame) => frame,
                None => return,
            }
        };
        let sent = match frame {
            None => stream.send_data(Bytes::new(), true),
            // The caller broke off; so do we.
            Some(Err(_)) => return stream.send_reset(h2::Reason::CANCEL),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let last = body.is_end_stream();
                    match send_data(&mut stream, data, last).await {
                        Ok(()) if !last => continue,
                        other => other,
                    }
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => stream.send_trailers(trailers),
                    Err(_) => continue,
                },
            },
        };
        // An error here is that of the stream; the receiving half hears of it too, and tells.
        let _ = sent;
        return;
    }
}

/// The next piece of the body, or `None` if the other end wants no more.
async fn until_reset<F: Future>(
    stream: &mut SendStream<Bytes>,
    next: Pin<&mut F>,
) -> Option<F::Output> {
    let mut next = next;
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => stream.poll_reset(cx).map(|_| None),
    })
    .await
}

async fn send_data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    last: bool,
) -> Result<(), h2::Error> {
    loop {
        stream.reserve_capacity(data.len());
        let room = match stream.capacity() {
            0 if !data.is_empty() => match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Ok(()),
            },
            room => room,
        };
        if room >= data.len() {
            return stream.send_data(data, last);
        }
        stream.send_data(data.split_to(room), false)?;
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.data_ended {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Whoever polls has taken what came before: there is room for as much again. It fails only for a
                    // stream that is closed already.
                    let _ = self.receive.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => self.data_ended = true,
            }
        }
        if self.trailers_ended {
            return Poll::Ready(None);
        }
        let trailers = ready!(self.receive.poll_trailers(cx));
        self.trailers_ended = true;
        Poll::Ready(match trailers {
            Ok(trailers) => trailers.map(|t| Ok(Frame::trailers(t))),
            Err(error) => Some(Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
