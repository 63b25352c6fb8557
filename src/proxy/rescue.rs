//! The one place where an error of a layer below becomes a gRPC status.
//!
//! A stream that the backend reset is not such an error: it passes unchanged, and the listener resets the caller's stream
//! with the same reason.

use crate::grpc::status::Status;
use crate::grpc::{BoxError, Response};
use crate::proxy::backend::remote;

/// Replaces an error of criscope by the status that stands for it.
///
/// # Errors
/// Those that are not criscope's.
pub fn rescue(answer: Result<Response, BoxError>) -> Result<Response, BoxError> {
    answer.or_else(|error| status(error).map(Status::into_response))
}

/// The status for an error, or the error itself if it is not criscope's.
fn status(error: BoxError) -> Result<Status, BoxError> {
    let error = match error.downcast::<Status>() {
        Ok(status) => return Ok(*status),
        Err(error) => error,
    };
    error
        .downcast::<remote::Error>()
        .map(|error| Status::unavailable(error.to_string()))
}
