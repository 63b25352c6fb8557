//! The CRI services on top of the runtime's verbs, and the backend for the router.

mod backend;
mod containerd;
mod images;
mod runtime;

use std::sync::Arc;

use tonic::{Request, Response, Status};

pub use self::backend::Builtin;
pub use self::containerd::Containerd;
use super::call_context::CallContext;
use super::{Error, Runtime};
use criscope_cri::call::Call;

/// State shared by the services.
#[derive(Clone, Debug)]
struct Service {
    runtime: Arc<Runtime>,
}

type Answer<T> = Result<Response<T>, Status>;

/// The number of items in one message of a streamed list.
const CHUNK: usize = 256;

/// A stream of messages that already exist.
type Ready<T> = futures_util::stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// Splits a request into its message and its call context.
fn open<T>(request: Request<T>) -> (T, CallContext) {
    let call = request.extensions().get::<CallContext>().cloned();
    (request.into_inner(), call.unwrap_or_default())
}

/// The call record, if the request came through the request path.
fn asked_by<T>(request: &Request<T>) -> Option<Arc<Call>> {
    request.extensions().get::<Arc<Call>>().cloned()
}

fn answer<T>(result: Result<T, Error>) -> Answer<T> {
    Ok(Response::new(result?))
}

/// Streams a list in messages of [`CHUNK`] items; an empty list has no message.
fn in_chunks<I, T>(items: Vec<I>, message: impl Fn(Vec<I>) -> T) -> Response<Ready<T>> {
    let mut messages = Vec::new();
    let mut items = items.into_iter();
    loop {
        let chunk: Vec<I> = items.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            break;
        }
        messages.push(Ok(message(chunk)));
    }
    Response::new(futures_util::stream::iter(messages))
}
