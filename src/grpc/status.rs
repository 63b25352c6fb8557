//! Answers that criscope gives itself: a gRPC status without a message, as a trailers-only response.

use http::{HeaderValue, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tonic::Code;

use super::{Body, Response};
use crate::cri::redact;

/// Marks a response whose status was made here, without words of a backend. Found in its extensions.
#[derive(Clone, Copy, Debug)]
pub struct MadeHere;

/// A status to answer a call with.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The gRPC code.
    pub code: Code,
    /// The text; the caller sees it as it is.
    pub message: String,
    /// Whether the text holds words of a backend, which may quote secrets.
    pub quotes_backend: bool,
}

/// What `grpc-message` may not hold as it is: everything but printable ASCII, and the percent sign itself.
const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

impl Status {
    /// A status.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            quotes_backend: false,
        }
    }

    /// A status as a backend gave it.
    pub fn of_backend(code: Code, message: impl Into<String>) -> Self {
        Self {
            quotes_backend: true,
            ..Self::new(code, message)
        }
    }

    /// The same with other words around its text.
    pub fn reworded(self, code: Code, words: impl FnOnce(&str) -> String) -> Self {
        Self {
            code,
            message: words(&self.message),
            ..self
        }
    }

    /// The text as it may be shown to others than the caller.
    pub fn shown(&self) -> Box<str> {
        match self.quotes_backend {
            true => redact::error_text(&self.message, None, None, None),
            false => redact::own_text(&self.message),
        }
    }

    /// `UNAVAILABLE`: the caller may try again.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The trailers (or the headers of a trailers-only response).
    pub fn to_headers(&self) -> http::HeaderMap {
        let mut headers = http::HeaderMap::with_capacity(3);
        headers.insert("grpc-status", HeaderValue::from(self.code as i32));
        let encoded = percent_encode(self.message.as_bytes(), MESSAGE).to_string();
        // Percent encoding leaves printable ASCII only, which every header value may hold.
        if let Ok(value) = HeaderValue::from_str(&encoded) {
            headers.insert("grpc-message", value);
        }
        headers
    }

    /// A trailers-only response: all is in the one HEADERS frame, which ends the stream.
    pub fn into_response(self) -> Response {
        let mut response = Response::new(Body::Empty);
        *response.headers_mut() = self.to_headers();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        if !self.quotes_backend {
            response.extensions_mut().insert(MadeHere);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn a_message_survives_the_header() {
        let text = "no socket at /run/ä.sock: 100 % gone\nsecond line";
        let response = Status::unavailable(text).into_response();
        assert_eq!(
            frame::status(response.headers()),
            Some((Code::Unavailable, Some(text.to_owned())))
        );
        assert!(http_body::Body::is_end_stream(response.body()));
    }

    /// A backend may quote anything, also in an answer to a question of our own.
    #[test]
    fn the_words_of_a_backend_are_not_shown_as_they_are() {
        let own = Status::unavailable("no socket at /run/hunter2.sock");
        assert_eq!(&*own.shown(), "no socket at /run/hunter2.sock");
        assert!(own.into_response().extensions().get::<MadeHere>().is_some());

        let theirs = Status::of_backend(Code::NotFound, "not found: hunter2");
        assert_eq!(&*theirs.shown(), "not found: <redacted>");
        let reworded = theirs.reworded(Code::Internal, |text| format!("backend a: {text}"));
        assert_eq!(reworded.message, "backend a: not found: hunter2");
        assert_eq!(&*reworded.shown(), "backend a: not found: <redacted>");
        let response = reworded.into_response();
        assert!(response.extensions().get::<MadeHere>().is_none());
    }
}
