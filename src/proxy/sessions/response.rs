//! An upstream's response with a URL: read completely if it is small, and forwarded as it arrived or with a URL of
//! criscope.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use tonic::Code;

use super::url::UrlMessage;
use crate::grpc::frame;
use crate::grpc::observed::{BodyObserver, FrameResult, ObservedBody};
use crate::grpc::{Body, Response};

/// Largest response that is read. A URL has about a hundred bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 10;

/// The part of a response that was read.
pub(super) struct BufferedResponse {
    head: http::response::Parts,
    frames: VecDeque<FrameResult>,
    rest: Body,
}

impl BufferedResponse {
    /// Reads a response to its end, or up to a limit.
    pub(super) async fn read(response: Response) -> Self {
        let (head, mut rest) = response.into_parts();
        let mut frames = VecDeque::new();
        let mut len = 0;
        while len <= MAX_RESPONSE_BYTES && !rest.is_end_stream() {
            let Some(frame) = rest.frame().await else {
                break;
            };
            if let Ok(frame) = &frame {
                len += frame.data_ref().map_or(0, Bytes::len);
            }
            let is_last = !matches!(&frame, Ok(frame) if frame.is_data());
            frames.push_back(frame);
            if is_last {
                break;
            }
        }
        Self { head, frames, rest }
    }

    /// The trailers, if the response was read to its end.
    fn trailers(&self) -> Option<&http::HeaderMap> {
        self.frames.back()?.as_ref().ok()?.trailers_ref()
    }

    fn status(&self) -> Option<Code> {
        let status = self.trailers().and_then(frame::status);
        Some(status.or_else(|| frame::status(&self.head.headers))?.0)
    }

    /// Returns whether it is an error, and there is no session.
    pub(super) fn is_error(&self) -> bool {
        self.status().is_some_and(|code| code != Code::Ok)
    }

    /// The message, if the response is successful and the message can be read and changed.
    pub(super) fn message(&self) -> Option<Bytes> {
        // With a `content-length` header the message must keep its length.
        if self.trailers().is_none()
            || self.status() != Some(Code::Ok)
            || self.head.headers.contains_key(CONTENT_LENGTH)
        {
            return None;
        }
        let mut all = Vec::new();
        for frame in &self.frames {
            if let Some(data) = frame.as_ref().ok()?.data_ref() {
                all.extend_from_slice(data);
            }
        }
        let message = frame::message(&all)?;
        (all.len() == frame::HEADER_LENGTH + message.len()).then(|| Bytes::copy_from_slice(message))
    }

    /// The response as it arrived.
    pub(super) fn untouched(self) -> Response {
        let body = ObservedBody::new(self.rest, ReplayedFrames(self.frames));
        Response::from_parts(self.head, Body::boxed(body))
    }

    /// The response with this URL in its message; headers and trailers are unchanged.
    pub(super) fn with(mut self, message: &UrlMessage<'_>, url: &str) -> Response {
        if let Ok(framed) = frame::frame(&message.with(url)) {
            self.frames
                .retain(|frame| !matches!(frame, Ok(frame) if frame.is_data()));
            self.frames.push_front(Ok(Frame::data(framed)));
        }
        self.untouched()
    }
}

/// The frames that were read, before the rest.
struct ReplayedFrames(VecDeque<FrameResult>);

impl BodyObserver<Body> for ReplayedFrames {
    fn poll_frame(&mut self, rest: &mut Body, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        match self.0.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self, rest: &Body) -> bool {
        self.0.is_empty() && rest.is_end_stream()
    }
}
