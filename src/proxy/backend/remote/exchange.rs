//! One call on an HTTP/2 connection, directly on h2.
//!
//! hyper's client passes each request to a connection task and each response back through another: two more wake-ups per
//! call than necessary. Here the task of the call itself sends the request and receives the response.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::SendRequest;
use h2::{Error, Reason, RecvStream, SendStream};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use tokio_util::task::AbortOnDropHandle;

use crate::grpc::{Body, Request};

/// A response body. Dropping it cancels the call.
#[derive(Debug)]
pub struct ResponseBody {
    receive: RecvStream,
    data_ended: bool,
    trailers_ended: bool,
    /// Sends the rest of the request.
    _sending: Option<AbortOnDropHandle<()>>,
}

/// Why there is no response.
#[derive(Debug)]
pub enum ExchangeError {
    /// The runtime closed the connection before it processed the call. The request is returned and may be sent again.
    NotProcessed(Box<Request>, Error),
    /// The call was sent, and then the stream or the connection broke.
    Broken(Error),
}

/// Sends a request and waits for the response headers.
///
/// # Errors
/// See [`ExchangeError`].
pub async fn exchange(
    sender: SendRequest<Bytes>,
    request: Request,
) -> Result<http::Response<ResponseBody>, ExchangeError> {
    let mut sender = match sender.ready().await {
        Ok(sender) => sender,
        Err(error) => return Err(ExchangeError::NotProcessed(Box::new(request), error)),
    };
    let (mut head, mut body) = request.into_parts();
    // Extensions do not leave the process; the rest is copied below.
    head.extensions.clear();
    let is_empty = body.is_end_stream();
    let (response, stream) = sender
        .send_request(http::Request::from_parts(head.clone(), ()), is_empty)
        .map_err(ExchangeError::Broken)?;
    // Nearly always the whole request has arrived. It is kept until the response begins, since it may have to be sent
    // again.
    let whole = body.take_whole();
    let can_repeat = is_empty || whole.is_some();
    let sending = match &whole {
        _ if is_empty => None,
        Some(whole) => send_whole(stream, whole.clone()),
        None => begin(send(std::mem::take(&mut body), stream)),
    };
    match response.await {
        Ok(response) => Ok(response.map(|receive| ResponseBody {
            data_ended: receive.is_end_stream(),
            trailers_ended: receive.is_end_stream(),
            receive,
            _sending: sending,
        })),
        Err(error) if can_repeat && was_not_processed(&error) => {
            let body = whole.map_or(body, Body::full);
            let request = Request::from_parts(head, body);
            Err(ExchangeError::NotProcessed(Box::new(request), error))
        }
        Err(error) => Err(ExchangeError::Broken(error)),
    }
}

/// Returns whether the runtime declared the stream unprocessed. h2 reports the peer's GOAWAY only on streams above its last
/// stream id (RFC 9113, section 6.8).
fn was_not_processed(error: &Error) -> bool {
    error.is_go_away() && error.is_remote()
}

/// A body of up to this size is handed to h2 at once, which buffers what flow control holds back. It is the initial window
/// of every stream (RFC 9113, section 6.9.2).
const MAX_UNPACED_BODY_BYTES: usize = 65_535;

/// Sends as much as the windows allow at once, and the rest from a task.
fn begin(sending: impl Future<Output = ()> + Send + 'static) -> Option<AbortOnDropHandle<()>> {
    let mut sending = Box::pin(sending);
    match sending.as_mut().now_or_never() {
        Some(()) => None,
        None => Some(AbortOnDropHandle::new(tokio::spawn(sending))),
    }
}

/// Sends a body in one piece, as nearly all are.
fn send_whole(mut stream: SendStream<Bytes>, data: Bytes) -> Option<AbortOnDropHandle<()>> {
    if data.len() > MAX_UNPACED_BODY_BYTES {
        return begin(send(Body::full(data), stream));
    }
    // The receiving half of the stream gets the error too, and reports it.
    let _ = stream.send_data(data, true);
    None
}

/// Sends a body as fast as flow control allows.
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
            // The caller reset the stream; this resets the runtime's.
            Some(Err(_)) => return stream.send_reset(Reason::CANCEL),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let is_last = body.is_end_stream();
                    match send_data(&mut stream, data, is_last).await {
                        Ok(()) if !is_last => continue,
                        other => other,
                    }
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => stream.send_trailers(trailers),
                    Err(_) => continue,
                },
            },
        };
        // The receiving half of the stream gets the error too, and reports it.
        let _ = sent;
        return;
    }
}

/// The next frame of the body, or `None` if the runtime resets the stream first.
async fn until_reset<F: Future>(
    stream: &mut SendStream<Bytes>,
    mut next: Pin<&mut F>,
) -> Option<F::Output> {
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => stream.poll_reset(cx).map(|_| None),
    })
    .await
}

async fn send_data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    is_last: bool,
) -> Result<(), Error> {
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
            return stream.send_data(data, is_last);
        }
        stream.send_data(data.split_to(room), false)?;
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.data_ended {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // The reader consumed all earlier data, so the window is released. This fails only for a stream that is
                    // closed already.
                    let _ = self.receive.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
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
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }
}
