//! The runtime as a backend: its calls run on the runtime's own threads, not on those of the request path.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::codegen::Service as _;

use super::Service;
use crate::Runtime;
use crate::call_context::CallContext;
use crate::steps::in_call;
use criscope_cri::call::Call;
use criscope_cri::call::steps::RuntimeSteps;
use criscope_cri::v1::image_service_server::ImageServiceServer;
use criscope_cri::v1::runtime_service_server::RuntimeServiceServer;
use criscope_grpc::status::Status;
use criscope_grpc::{Body, BoxError, CallHandler, Request, ResponseFuture, frame};

/// The built-in runtime as a backend. Cheap to clone.
#[derive(Clone)]
pub struct Builtin {
    runtime: RuntimeServiceServer<Service>,
    images: ImageServiceServer<Service>,
    threads: Handle,
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Builtin")
    }
}

impl Builtin {
    /// Creates a backend that runs calls on `threads`, a tokio runtime. `limit` is the maximum size of a message in bytes.
    pub fn new(runtime: Arc<Runtime>, threads: Handle, limit: usize) -> Self {
        let service = Service { runtime };
        Self {
            runtime: RuntimeServiceServer::new(service.clone())
                .max_decoding_message_size(limit)
                .max_encoding_message_size(usize::MAX),
            images: ImageServiceServer::new(service)
                .max_decoding_message_size(limit)
                .max_encoding_message_size(usize::MAX),
            threads,
        }
    }
}

impl CallHandler for Builtin {
    fn answer(&self, mut request: Request) -> ResponseFuture {
        let gone = CancellationToken::new();
        let waits = gone.clone().drop_guard();
        let deadline = frame::timeout(request.headers()).map(|left| Instant::now() + left);
        let call = CallContext::new(deadline, gone);
        request.extensions_mut().insert(call.clone());
        // From here on, the runtime records the steps of the call.
        let phases = request.extensions().get::<Arc<Call>>().map(|call| {
            let steps = call
                .steps
                .get_or_init(|| Arc::new(RuntimeSteps::new(call.placement().as_ref())));
            Arc::clone(steps)
        });
        let (mut runtime, mut images) = (self.runtime.clone(), self.images.clone());
        let threads = self.threads.clone();
        Box::pin(async move {
            // A call may be cancelled before its message is complete. Reading all of it first also means that nothing is
            // started for an incomplete request.
            let request = whole(request).await?;
            let is_image = request
                .uri()
                .path()
                .starts_with("/runtime.v1.ImageService/");
            // Spawned, so that dropping the response does not drop the work.
            let work = threads.spawn(in_call(phases, async move {
                let response = if is_image {
                    images.call(request).await
                } else {
                    runtime.call(request).await
                };
                response.unwrap_or_else(|never| match never {})
            }));
            let answer = tokio::select! {
                biased;
                done = work => done,
                error = call.abandoned() => {
                    let status = Status::new(error.code(), error.to_string());
                    return Ok(status.into_response());
                }
            };
            // The caller waits until the response starts; for a stream, its body takes over from here.
            drop(waits);
            Ok(match answer {
                Ok(response) => response.map(|body| Body::boxed(body.map_err(BoxError::from))),
                Err(error) => {
                    Status::new(Code::Internal, format!("a call failed: {error}")).into_response()
                }
            })
        })
    }
}

/// Collects the body of the request, and sets the service name that tonic expects.
async fn whole(request: Request) -> Result<http::Request<http_body_util::Full<Bytes>>, BoxError> {
    let (mut head, mut body) = request.into_parts();
    let bytes = match body.take_whole() {
        Some(bytes) => bytes,
        None => body.collect().await?.to_bytes(),
    };
    if let Some(rest) = head.uri.path().strip_prefix("/runtime.v1alpha2.") {
        head.uri = Uri::try_from(format!("/runtime.v1.{rest}"))?;
    }
    Ok(http::Request::from_parts(
        head,
        http_body_util::Full::new(bytes),
    ))
}
