//! The response body of a remote backend.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};

use super::RemoteBackend;
use super::error::was_reset_by_runtime;
use super::exchange::ResponseBody;
use crate::call::Call;
use crate::grpc::Body;
use crate::grpc::observed::{BodyObserver, FrameResult, ObservedBody};
use crate::grpc::status::Status;

/// Forwards frames as they arrive. If the connection to the runtime breaks, the caller gets trailers with an error; a
/// stream that the runtime resets is reset here with the same reason.
pub(super) fn forwarded(
    body: ResponseBody,
    call: Option<Arc<Call>>,
    remote: Arc<RemoteBackend>,
) -> Body {
    let observer = ForwardedFrames {
        call,
        remote,
        is_lost: false,
    };
    if body.is_end_stream() {
        observer.backend_ends();
    }
    Body::boxed(ObservedBody::new(body, observer))
}

struct ForwardedFrames {
    call: Option<Arc<Call>>,
    remote: Arc<RemoteBackend>,
    /// True once the connection broke. Nothing reads the rest of a broken stream.
    is_lost: bool,
}

impl ForwardedFrames {
    fn backend_ends(&self) {
        if let Some(call) = &self.call {
            call.backend_ends();
        }
    }

    fn lost(&mut self) -> Frame<Bytes> {
        self.is_lost = true;
        let status = Status::unavailable(format!(
            "backend {} at {}: connection lost during the answer",
            self.remote.name,
            self.remote.endpoint()
        ));
        Frame::trailers(status.to_headers())
    }
}

impl BodyObserver<ResponseBody> for ForwardedFrames {
    fn poll_frame(
        &mut self,
        body: &mut ResponseBody,
        cx: &mut Context<'_>,
    ) -> Poll<Option<FrameResult>> {
        if self.is_lost {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Err(error)) if was_reset_by_runtime(&error) => Some(Err(error.into())),
            Some(Err(_)) => Some(Ok(self.lost())),
            Some(Ok(frame)) => Some(Ok(frame)),
            None => None,
        };
        let is_last = match &frame {
            Some(Ok(frame)) => frame.is_trailers() || self.is_end_stream(body),
            Some(Err(_)) | None => true,
        };
        if is_last {
            self.backend_ends();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self, body: &ResponseBody) -> bool {
        self.is_lost || body.is_end_stream()
    }
}
