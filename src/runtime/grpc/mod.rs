//! The CRI services over the runtime's verbs, and the backend that the router sees.

mod backend;
mod images;
mod runtime;

use std::sync::Arc;

use tonic::{Request, Response, Status};

pub use self::backend::Builtin;
use super::call_context::CallContext;
use super::{Error, Runtime};
use crate::call::Call;

/// The services' one state.
#[derive(Clone, Debug)]
struct Service {
    runtime: Arc<Runtime>,
}

type Answer<T> = Result<Response<T>, Status>;

/// Items of a list that go in one message of a stream of it.
const CHUNK: usize = 256;

/// A stream of messages that are here already.
type Ready<T> = futures_util::stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// The message of a call, and who asked.
fn open<T>(request: Request<T>) -> (T, CallContext) {
    let call = request.extensions().get::<CallContext>().cloned();
    (request.into_inner(), call.unwrap_or_default())
}

/// The record of a call, if it came by the path of calls.
fn asked_by<T>(request: &Request<T>) -> Option<Arc<Call>> {
    request.extensions().get::<Arc<Call>>().cloned()
}

fn answer<T>(result: Result<T, Error>) -> Answer<T> {
    Ok(Response::new(result?))
}

/// A list as a stream: a long one in several messages, an empty one in none.
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
