//! Scripts of the fake runtime.

use bytes::Bytes;
use h2::Reason;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use crate::{headers, message};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads the request to its end.
    Read,
    /// Sends the response head with this HTTP status.
    Head(u16, HeaderMap),
    /// Sends the head and ends the stream with it.
    HeadOnly(u16, HeaderMap),
    /// Sends data as the window allows.
    Data(Bytes),
    /// Sends trailers, which ends the stream.
    Trailers(HeaderMap),
    /// Ends the stream with an empty DATA frame.
    End,
    /// Waits until the token is cancelled.
    Wait(CancellationToken),
    /// Resets the stream.
    Reset(Reason),
    /// Flushes queued frames and closes the connection.
    Close,
    /// Sends GOAWAY and finishes the open streams.
    GoAway,
    /// Ends the connection with GOAWAY and this reason.
    Abort(Reason),
    /// Does nothing until the stream is reset or the connection closes.
    Hang,
}

/// The head of a successful response.
pub fn head() -> Step {
    Step::Head(200, headers(&[("content-type", "application/grpc")]))
}

/// Trailers with a status.
pub fn status(code: i32, text: &str) -> HeaderMap {
    let code = code.to_string();
    match text {
        "" => headers(&[("grpc-status", &code)]),
        text => headers(&[("grpc-status", &code), ("grpc-message", text)]),
    }
}

/// A successful response of these framed messages.
pub fn ok(messages: &[Bytes]) -> Vec<Step> {
    let mut steps = vec![Step::Read, head()];
    steps.extend(messages.iter().cloned().map(Step::Data));
    steps.push(Step::Trailers(status(0, "")));
    steps
}

/// A successful response of one empty message.
pub fn empty() -> Vec<Step> {
    ok(&[message(b"")])
}

/// A status without a message, in one HEADERS frame.
pub fn error(code: i32, text: &str) -> Vec<Step> {
    let mut all = status(code, text);
    all.insert(
        "content-type",
        http::HeaderValue::from_static("application/grpc"),
    );
    vec![Step::Read, Step::HeadOnly(200, all)]
}
