//! Both ends against h2, and against peers that write frames by hand.

mod client;
mod raw;
mod server;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{BoxError, Error, Incoming, server as own};

/// Pipes small enough to fill up.
fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(40_000)
}

thread_local! {
    /// How often something has come that was waited for; a test has a thread of its own.
    static MOVED: Cell<u64> = const { Cell::new(0) };
}

/// Something has come.
fn moves() {
    MOVED.set(MOVED.get() + 1);
}

/// Nothing here may hang: it ends, or something [`moves`]. How long all of it takes is up to the machine.
async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let before = MOVED.get();
        match tokio::time::timeout(Duration::from_secs(30), &mut future).await {
            Ok(output) => return output,
            Err(_) => assert!(MOVED.get() > before, "{what} takes too long"),
        }
    }
}

/// Data that shows when it is out of place.
fn pattern(len: usize) -> Bytes {
    (0..len)
        .map(|i| (i / 251 + i) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn trailers(code: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    trailers
}

type Boxed = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// Answers with the request's own bytes and trailers, as they come; some paths have a mind of their own.
async fn echo(request: Request<Incoming>) -> Result<Response<Boxed>, BoxError> {
    let (head, body) = request.into_parts();
    let body: Boxed = match head.uri.path() {
        "/fails" => return Err(Box::new(Error::Reset(super::Reason::REFUSED_STREAM))),
        "/hangs" => std::future::pending().await,
        "/ignores" => Box::pin(http_body_util::Full::new(pattern(10)).map_err(|e| match e {})),
        "/only" => Box::pin(http_body_util::Empty::new().map_err(|e| match e {})),
        "/large" => Box::pin(Pieces(300)),
        _ => Box::pin(body.map_err(BoxError::from)),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// A large answer in many pieces, with trailers.
struct Pieces(usize);

/// Made once: a thousand large answers are no reason to make it a hundred thousand times.
static PIECE: LazyLock<Bytes> = LazyLock::new(|| pattern(10_000));

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.0 {
            0 => return Poll::Ready(None),
            1 => {
                self.0 = 0;
                return Poll::Ready(Some(Ok(Frame::trailers(trailers("0")))));
            }
            _ => self.0 -= 1,
        }
        Poll::Ready(Some(Ok(Frame::data(PIECE.clone()))))
    }
}

/// Our server at one end of a pipe, until told to leave.
fn serve(io: DuplexStream, leave: CancellationToken) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(async move {
        let mut connection = own::Connection::new(io, tower::service_fn(echo), 1000);
        tokio::select! {
            ended = poll_fn(|cx| connection.poll(cx)) => return ended,
            () = leave.cancelled() => connection.leave(),
        }
        poll_fn(|cx| connection.poll(cx)).await
    })
}
