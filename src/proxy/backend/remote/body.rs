//! The response body of a remote backend.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::RemoteBackend;
use super::error::was_reset_by_runtime;
use super::exchange::ResponseBody;
use crate::call::Call;
use crate::grpc::BoxError;
use crate::grpc::status::Status;

/// Forwards frames as they arrive. If the connection to the runtime breaks, the caller gets trailers with an error; a
/// stream that the runtime resets is reset here with the same reason.
#[derive(Debug)]
pub struct ForwardedBody {
    inner: Option<ResponseBody>,
    call: Option<Arc<Call>>,
    remote: Arc<RemoteBackend>,
}

impl ForwardedBody {
    pub(super) fn new(
        inner: ResponseBody,
        call: Option<Arc<Call>>,
        remote: Arc<RemoteBackend>,
    ) -> Self {
        let body = Self {
            inner: Some(inner),
            call,
            remote,
        };
        if body.is_end_stream() {
            body.backend_ends();
        }
        body
    }

    fn backend_ends(&self) {
        if let Some(call) = &self.call {
            call.backend_ends();
        }
    }

    fn lost(&mut self) -> Frame<Bytes> {
        // Nothing reads the rest of a broken stream.
        self.inner = None;
        let status = Status::unavailable(format!(
            "backend {} at unix://{}: connection lost during the answer",
            self.remote.name,
            self.remote.path.display()
        ));
        Frame::trailers(status.to_headers())
    }
}

impl HttpBody for ForwardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let frame = match ready!(Pin::new(inner).poll_frame(cx)) {
            Some(Err(error)) if was_reset_by_runtime(&error) => Some(Err(error.into())),
            Some(Err(_)) => Some(Ok(self.lost())),
            Some(Ok(frame)) => Some(Ok(frame)),
            None => None,
        };
        let is_last = match &frame {
            Some(Ok(frame)) => frame.is_trailers() || self.is_end_stream(),
            Some(Err(_)) | None => true,
        };
        if is_last {
            self.backend_ends();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
