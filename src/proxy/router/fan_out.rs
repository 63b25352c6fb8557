//! Sends a request to several backends.

use std::sync::Arc;

use futures_util::future::join_all;
use http::HeaderMap;
use http_body_util::{BodyExt, Limited};
use tonic::Code;

use crate::grpc::status::Status;
use crate::grpc::{Body, BoxError, CriService, Request, Response, frame};

/// Largest request that is sent to several backends, in bytes. Requests for lists are small.
const MAX_REQUEST: usize = 16 << 20;

/// The response of one backend, without an error in its headers.
#[derive(Debug)]
pub struct BackendResponse {
    /// The backend.
    pub backend: Arc<str>,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Messages and trailers of the response.
    pub body: Body,
}

/// Sends the request to all. Responses are in the order of the backends.
///
/// # Errors
/// The status of the first backend that fails, with its name. One failing backend fails the whole call.
pub async fn ask(
    request: Request,
    backends: Vec<(Arc<str>, CriService)>,
) -> Result<Vec<BackendResponse>, BoxError> {
    let (mut head, body) = request.into_parts();
    let body = Limited::new(body, MAX_REQUEST).collect().await?.to_bytes();
    // Compressed responses cannot be joined, and compression is optional for every gRPC server.
    head.headers.remove("grpc-accept-encoding");

    let answers = join_all(backends.into_iter().map(|(backend, service)| {
        let request = Request::from_parts(head.clone(), Body::full(body.clone()));
        async move {
            let answer = match service.answer(request).await {
                Ok(response) => accept(Arc::clone(&backend), response),
                Err(error) => Err(Status::unavailable(error.to_string())),
            };
            answer.map_err(|status| blame(&backend, status))
        }
    }))
    .await;
    answers
        .into_iter()
        .collect::<Result<Vec<_>, Status>>()
        .map_err(Into::into)
}

fn accept(backend: Arc<str>, response: Response) -> Result<BackendResponse, Status> {
    let (head, body) = response.into_parts();
    match frame::status(&head.headers) {
        Some((Code::Ok, _)) | None if head.status.is_success() => Ok(BackendResponse {
            backend,
            headers: head.headers,
            body,
        }),
        Some((code, message)) => Err(Status::from_backend(code, message.unwrap_or_default())),
        None => Err(Status::new(
            frame::code_of_http(head.status),
            format!("http status {}", head.status),
        )),
    }
}

/// Prefixes a status with the name of the backend.
pub fn blame(backend: &str, status: Status) -> Status {
    let code = status.code;
    status.reworded(code, |text| format!("backend {backend}: {text}"))
}
