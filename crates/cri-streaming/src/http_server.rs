//! HTTP/1.1 up to the upgrade: parses the request head, checks its token, and responds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::run::{self, NegotiatedSession};
use super::state::ServerState;
use super::upgrade::negotiate;

/// How long a client may take to send the head of its request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head, in bytes.
const MAX_HEAD_LEN: usize = 64 << 10;

/// Serves the connections of a [`SessionServer`](super::SessionServer). Cheap to clone.
#[derive(Clone)]
pub struct HttpServer {
    shared: Arc<ServerState>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").finish_non_exhaustive()
    }
}

impl HttpServer {
    pub(super) fn new(
        shared: Arc<ServerState>,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            shared,
            stop,
            tasks,
        }
    }

    /// Serves requests until one is upgraded: its session then runs as a task. The connection is TCP, or TLS that is
    /// already terminated.
    pub async fn serve_connection<T>(&self, io: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let response = self.answer(request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_LEN)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        tokio::select! {
            // Errors are caused by the client, which has received its response.
            _ = connection => {}
            () = self.stop.cancelled() => {}
        }
    }

    fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.version() != Version::HTTP_11 {
            return refusal(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 only");
        }
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "GET and POST only");
        }
        // Before the token is used up, so that the client can retry.
        let Ok(permit) = Arc::clone(&self.shared.permits).try_acquire_owned() else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions");
        };
        let Some(wanted) = self.shared.tokens.take(request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND, "no such session");
        };
        let answer = negotiate(wanted.request.kind(), request.method(), request.headers());
        let Some(chosen) = answer.chosen else {
            let mut response = refusal(answer.status, answer.why);
            response.headers_mut().extend(answer.headers);
            return response;
        };
        let start = match NegotiatedSession::new(wanted, chosen) {
            Ok(start) => start,
            Err(why) => return refusal(StatusCode::BAD_REQUEST, why),
        };
        let session = run::session(
            Arc::clone(&self.shared),
            start,
            hyper::upgrade::on(request),
            permit,
            self.stop.clone(),
        );
        self.tasks.spawn(session);
        let mut response = Response::new(Full::default());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(why));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
