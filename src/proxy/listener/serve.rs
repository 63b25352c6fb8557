//! Accepts connections and serves each with its own stack of layers.

use std::io;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt as _};

use super::authority::RewriteAuthority;
use super::batched::BatchFrames;
use super::metrics::ConnectionMetrics;
use super::peer;
use crate::call::{Client, Peer};
use crate::grpc::BoxError;
use crate::grpc::limits::{CONNECTION_WINDOW, MAX_HEADER_LIST, STREAM_WINDOW};
use crate::grpc::observed::ObservedBody;
use crate::uds::limit::{ConnectionLimit, ConnectionPermit, EvictionPolicy, RequestInProgress};
use crate::uds::{FilteredStream, SocketListener, SocketStream};

/// Most concurrent connections. A node has a handful of callers; beyond this the connection idle for longest is asked to
/// close, and if all have calls in flight, new ones wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 1024;

/// Most calls in flight on one connection (`SETTINGS_MAX_CONCURRENT_STREAMS`). The kubelet has one connection for the
/// runtime service, with a call or two for each of about a hundred pods at most.
const MAX_CALLS: u32 = 1000;

/// Most streams reset before they were accepted, and most streams with protocol errors, before their connection is closed.
/// A kubelet that restarts drops many calls at once.
const MAX_RESET_STREAMS: usize = 1024;

/// How long a connection that was asked to close may take if it has no calls.
const IDLE_CLOSE_TIMEOUT: Duration = Duration::from_millis(20);

/// Pause after an accept that failed for lack of file descriptors; each connection that ends frees one.
const FAILED_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then waits for the calls in flight until `cut`. Returns how many connections were cut.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve<M, S, B>(
    listener: UnixListener,
    make_service: M,
    connections: Arc<ConnectionMetrics>,
    stop: CancellationToken,
    cut: CancellationToken,
) -> io::Result<usize>
where
    M: Fn(Arc<Peer>) -> S,
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: HttpBody<Data = bytes::Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    let listener = SocketListener::new(listener)?;
    let limit = ConnectionLimit::new(MAX_CONNECTIONS, EvictionPolicy::Idle);
    let (tasks, calls) = (TaskTracker::new(), CallExecutor::default());
    let cut_connections = CancellationToken::new();
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(error.message = %error, "cannot accept a connection");
                tokio::time::sleep(FAILED_ACCEPT_PAUSE).await;
                continue;
            }
        };
        let permit = tokio::select! {
            permit = limit.take() => Arc::new(permit),
            () = stop.cancelled() => break,
        };
        let peer = Arc::new(peer::identify(&socket));
        let stream = match SocketStream::new(socket) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(error.message = %error, "cannot serve a connection");
                continue;
            }
        };
        let open = OpenConnectionGuard::new(&connections, peer.client);
        let service = counted(make_service(peer), Arc::clone(&permit));
        let (stop, calls) = (stop.clone(), calls.clone());
        let cut_connection = cut_connections.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = connection(stream, service, calls, &permit, stop) => {}
                () = cut_connection.cancelled() => {}
            }
            drop(open);
        });
    }
    // New callers are refused at once instead of waiting in the backlog of a listener that accepts no more. With socket
    // activation systemd holds the socket, and they wait for the next instance.
    drop(listener);
    tasks.close();
    calls.0.close();
    let ended = async {
        tasks.wait().await;
        calls.0.wait().await;
    };
    if cut.run_until_cancelled(ended).await.is_some() {
        return Ok(0);
    }
    let left = tasks.len();
    // Dropping a connection drops the streams of its calls; each ends as cancelled.
    cut_connections.cancel();
    tasks.wait().await;
    calls.0.wait().await;
    Ok(left)
}

/// Counts the calls of a service in the permit of their connection, from the request to the end of the response body.
fn counted<S, B>(
    service: S,
    permit: Arc<ConnectionPermit>,
) -> impl Service<
    http::Request<Incoming>,
    Response = http::Response<ObservedBody<B, RequestInProgress>>,
    Error = BoxError,
    Future: Send,
> + Clone
+ Send
+ 'static
where
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    service.map_future(move |answer| {
        let busy = permit.request();
        async move {
            let answer = answer.await;
            answer.map(|response| response.map(|body| ObservedBody::new(body, busy)))
        }
    })
}

/// Spawns the calls of all connections, and tracks when the last has ended.
#[derive(Clone, Debug, Default)]
struct CallExecutor(TaskTracker);

impl<F> Executor<F> for CallExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        self.0.spawn(call);
    }
}

/// Counts an open connection, also if its task panics.
struct OpenConnectionGuard(Arc<ConnectionMetrics>, Client);

impl OpenConnectionGuard {
    fn new(connections: &Arc<ConnectionMetrics>, client: Client) -> Self {
        connections.opened(client);
        Self(Arc::clone(connections), client)
    }
}

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        self.0.closed(self.1);
    }
}

/// The settings of a caller's connection.
fn settings(calls: CallExecutor) -> Builder<CallExecutor> {
    let mut builder = Builder::new(calls);
    builder
        // The backend's responses have no `date` header, so none is added.
        .auto_date_header(false)
        .max_concurrent_streams(MAX_CALLS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

async fn connection<S, B>(
    stream: SocketStream,
    service: S,
    calls: CallExecutor,
    permit: &ConnectionPermit,
    stop: CancellationToken,
) where
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: HttpBody<Data = bytes::Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    // The client sends first (RFC 9113, section 3.4). A connection that never sent anything has nothing to drain.
    let spoken = tokio::select! {
        spoken = stream.readable() => spoken,
        () = permit.wanted() => return,
        () = stop.cancelled() => return,
    };
    if let Err(error) = spoken {
        tracing::debug!(error.message = %error, "connection ended");
        return;
    }
    let stream = FilteredStream::new(stream, BatchFrames::default());
    let io = TokioIo::new(FilteredStream::new(stream, RewriteAuthority::default()));
    let service = TowerToHyperService::new(service);
    let mut connection = pin!(settings(calls).serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stop.cancelled() => None,
        () = permit.wanted() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            loop {
                tokio::select! {
                    ended = connection.as_mut() => break ended,
                    // A caller that does not respond is cut.
                    () = tokio::time::sleep(IDLE_CLOSE_TIMEOUT), if !stop.is_cancelled() => {
                        if permit.is_idle() {
                            return;
                        }
                    }
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error.message = %error, "connection ended");
    }
}
