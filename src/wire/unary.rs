//! Calls that criscope makes itself: a request message out, an answer message back.

use http_body_util::{BodyExt, Limited};
use prost::Message;
use tonic::Code;
use tower::{Service, ServiceExt};

use super::frame::{self, Head};
use super::status::Status;
use super::{Body, BoxError, Request, Response};

/// Largest answer taken, in bytes. A list of some ten thousand containers.
const MAX_ANSWER: usize = 64 << 20;

/// A request of criscope's own to `path` (`/runtime.v1.RuntimeService/Version`).
///
/// # Errors
/// `INVALID_ARGUMENT` if the message is too large for a frame or the path is none.
pub fn request(path: &str, message: &[u8]) -> Result<Request, Status> {
    let invalid = |e: &dyn std::fmt::Display| Status::new(Code::InvalidArgument, e.to_string());
    let framed = frame::frame(message).map_err(|e| invalid(&e))?;
    http::Request::post(format!("http://localhost{path}"))
        .version(http::Version::HTTP_2)
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .header(
            http::header::USER_AGENT,
            concat!("criscope/", env!("CARGO_PKG_VERSION")),
        )
        .body(Body::full(framed))
        .map_err(|e| invalid(&e))
}

/// Makes a call.
///
/// # Errors
/// The status of the answer, or `UNAVAILABLE` if there is none, or `INTERNAL` if the answer is no message of this type.
pub async fn call<S, Q, A>(service: &mut S, path: &str, message: &Q) -> Result<A, Status>
where
    S: Service<Request, Response = Response, Error = BoxError>,
    Q: Message,
    A: Message + Default,
{
    let request = request(path, &message.encode_to_vec())?;
    let unavailable = |e: BoxError| Status::unavailable(e.to_string());
    let response = service
        .ready()
        .await
        .map_err(unavailable)?
        .call(request)
        .await
        .map_err(unavailable)?;
    let (head, body) = response.into_parts();
    if let Some((code, message)) = frame::status(&head.headers) {
        if code != Code::Ok {
            return Err(Status::of_backend(code, message.unwrap_or_default()));
        }
    }
    let collected = Limited::new(body, MAX_ANSWER)
        .collect()
        .await
        .map_err(unavailable)?;
    let trailers = collected.trailers().and_then(frame::status);
    match trailers.or_else(|| frame::status(&head.headers)) {
        Some((Code::Ok, _)) => {}
        Some((code, message)) => return Err(Status::of_backend(code, message.unwrap_or_default())),
        None => {
            let text = format!(
                "the answer has no grpc-status (http status {})",
                head.status
            );
            return Err(Status::new(frame::code_of_http(head.status), text));
        }
    }
    let bytes = collected.to_bytes();
    let invalid = || Status::new(Code::Internal, "the answer is not one whole message");
    let message = Head::read(&bytes)
        .filter(|head| !head.compressed)
        .and_then(|head| bytes.get(frame::HEADER..frame::HEADER.checked_add(head.len)?))
        .ok_or_else(invalid)?;
    A::decode(message).map_err(|_| invalid())
}
