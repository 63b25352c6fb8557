//! criscope's own responses: a gRPC status without a message, as a trailers-only response.

use http::{HeaderValue, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tonic::Code;

use super::{Body, Response};
use criscope_cri::redact;

/// Marks a response, in its extensions, whose status was created here and does not quote a backend.
#[derive(Clone, Copy, Debug)]
pub struct LocalStatusMarker;

/// A gRPC status to answer a call with.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The gRPC code.
    pub code: Code,
    /// The text, sent to the caller unchanged.
    pub message: String,
    /// True if the text quotes a backend, and so may contain secrets.
    pub quotes_backend: bool,
}

/// Characters encoded in `grpc-message`: everything but printable ASCII, and the percent sign itself.
const GRPC_MESSAGE_ESCAPES: &AsciiSet = &CONTROLS.add(b'%');

impl Status {
    /// A status.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            quotes_backend: false,
        }
    }

    /// A status from a backend.
    pub fn from_backend(code: Code, message: impl Into<String>) -> Self {
        Self {
            quotes_backend: true,
            ..Self::new(code, message)
        }
    }

    /// Returns it with another code, and its text embedded in another.
    pub fn reworded(self, code: Code, words: impl FnOnce(&str) -> String) -> Self {
        Self {
            code,
            message: words(&self.message),
            ..self
        }
    }

    /// The redacted text, for logs and pages.
    pub fn shown(&self) -> Box<str> {
        if self.quotes_backend {
            redact::error_text(&self.message, None, None, None)
        } else {
            redact::own_text(&self.message)
        }
    }

    /// `UNAVAILABLE`: the caller may retry.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The trailers, or the headers of a trailers-only response.
    pub fn to_headers(&self) -> http::HeaderMap {
        let mut headers = http::HeaderMap::with_capacity(3);
        headers.insert("grpc-status", HeaderValue::from(self.code as i32));
        let encoded = percent_encode(self.message.as_bytes(), GRPC_MESSAGE_ESCAPES).to_string();
        // Percent encoding leaves printable ASCII only, which is valid in every header value.
        if let Ok(value) = HeaderValue::from_str(&encoded) {
            headers.insert("grpc-message", value);
        }
        headers
    }

    /// A trailers-only response: a single HEADERS frame, which ends the stream.
    pub fn into_response(self) -> Response {
        let mut response = Response::new(Body::Empty);
        *response.headers_mut() = self.to_headers();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        if !self.quotes_backend {
            response.extensions_mut().insert(LocalStatusMarker);
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

    /// A backend may quote anything, also in a response to one of criscope's own requests.
    #[test]
    fn messages_of_backends_are_redacted() {
        let own = Status::unavailable("no socket at /run/hunter2.sock");
        assert_eq!(&*own.shown(), "no socket at /run/hunter2.sock");
        assert!(
            own.into_response()
                .extensions()
                .get::<LocalStatusMarker>()
                .is_some()
        );

        let theirs = Status::from_backend(Code::NotFound, "not found: hunter2");
        assert_eq!(&*theirs.shown(), "not found: <redacted>");
        let reworded = theirs.reworded(Code::Internal, |text| format!("backend a: {text}"));
        assert_eq!(reworded.message, "backend a: not found: hunter2");
        assert_eq!(&*reworded.shown(), "backend a: not found: <redacted>");
        let response = reworded.into_response();
        assert!(response.extensions().get::<LocalStatusMarker>().is_none());
    }
}
