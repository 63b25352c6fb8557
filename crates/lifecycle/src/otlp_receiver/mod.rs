//! OTLP/gRPC receiver for the spans of the runtime and of the kubelet: containerd, CRI-O and the kubelet can export to it.
//! Spans below our calls become part of the episode, spans of the kubelet's work on a pod part of its story; all spans are
//! forwarded to the collector unchanged.
//!
//! Off unless `receiver.listen` is set. Connections, concurrent requests, their size and both queues are bounded. Only root and
//! the users in `receiver.allowed_uids` are served, since spans are forwarded with the node's credentials.
//!
//! | module | content |
//! |---|---|
//! | `admission` | the users that may connect |
//! | `serve` | one request: limits, response |
//! | `spans` | decodes ids, names and times of spans |
//! | `kubelet` | decodes the kubelet's spans of its work on pods |
//! | `span_tree` | assigns spans to calls |
//! | `forward` | forwards requests to the collector |

mod admission;
mod forward;
mod kubelet;
pub mod metrics;
mod serve;
mod span_tree;
mod spans;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;

use self::admission::{AllowedUsers, RefusedClient};
use self::metrics::ReceiverMetrics;
use self::serve::ExportService;
pub use self::span_tree::CallSpanSource;
use self::span_tree::SpanTree;
use crate::AggregatorEvent;
use criscope_grpc::uds::limit::{ConnectionLimit, ConnectionPermit, EvictionPolicy};
use criscope_telemetry::Drops;
use criscope_telemetry::otlp::Collector;

/// The only method that is served.
const EXPORT_METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Upper bound of connections of allowed users. A node has one or two runtimes with one or two exporters each. One connection
/// more closes the longest idle one.
const MAX_CONNECTIONS: usize = 16;

/// Upper bound of connections of other users, which get an error. They take no place of the runtime.
const MAX_REFUSED_CONNECTIONS: usize = 4;

/// Upper bound of concurrent requests on a connection.
const MAX_STREAMS: u32 = 8;

/// Flow control window of a request, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;

/// A silent peer gets a ping after this time, and has as long to answer it.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Pause after an accept that failed for lack of file descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Binding the address failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot receive spans on {address}: {source}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Binds the listening socket.
///
/// # Errors
/// If the address is in use or not local.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| BindError { address, source })
}

/// Receives spans.
pub struct OtlpReceiver {
    /// Listening socket.
    pub listener: TcpListener,
    /// The spans of criscope's calls.
    pub call_spans: CallSpanSource,
    /// Events for the aggregator.
    pub feed: Sender<AggregatorEvent>,
    /// The collector.
    pub collector: Option<Collector>,
    /// Counter of dropped spans.
    pub drops: Arc<Drops>,
    /// Metrics.
    pub metrics: ReceiverMetrics,
    /// User ids that may connect besides root.
    pub allowed_uids: Vec<u32>,
}

impl fmt::Debug for OtlpReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("listener", &self.listener)
            .field("collector", &self.collector)
            .finish_non_exhaustive()
    }
}

impl OtlpReceiver {
    /// Receives until dropped.
    ///
    /// # Errors
    /// If the listener cannot be registered with the async runtime.
    pub async fn run(self) -> io::Result<()> {
        let address = self.listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let metrics = Arc::new(self.metrics);
        let collector = self.collector.filter(|to| {
            let loops = leads_to(&to.url().to_string(), address);
            if loops {
                tracing::error!(
                    target: "criscope::lifecycle",
                    event = "receiver.loop",
                    endpoint = %to.url(),
                    "telemetry.otlp.endpoint is receiver.listen itself: spans of the runtime are not forwarded"
                );
            }
            !loops
        });
        let (forward, forwarder) = collector
            .map(|to| forward::forward_queue(to, &self.drops, &metrics))
            .unzip();
        let shared = Arc::new(ExportService::new(
            SpanTree::new(self.call_spans),
            self.feed,
            forward,
            self.drops,
            metrics,
        ));
        tracing::info!(target: "criscope::lifecycle", event = "receiver.started", server.address = %address, "receiving spans of the runtime");
        let accepting = accept(&listener, &shared, AllowedUsers::new(self.allowed_uids));
        match forwarder {
            Some(forwarder) => drop(tokio::join!(accepting, forwarder.run())),
            None => accepting.await,
        }
        Ok(())
    }
}

async fn accept(
    listener: &tokio::net::TcpListener,
    shared: &Arc<ExportService>,
    mut admission: AllowedUsers,
) {
    let admitted = ConnectionLimit::new(MAX_CONNECTIONS, EvictionPolicy::Any);
    let refused = ConnectionLimit::new(MAX_REFUSED_CONNECTIONS, EvictionPolicy::Any);
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let refusal = admission.check(&stream, client).err();
                let limit = match refusal {
                    None => &admitted,
                    Some(_) => &refused,
                };
                let (shared, permit) = (Arc::clone(shared), limit.take().await);
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection(stream, shared, refusal, &permit) => {}
                        () = permit.wanted() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(target: "criscope::lifecycle", { error.message = %error }, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    shared: Arc<ExportService>,
    refusal: Option<RefusedClient>,
    permit: &ConnectionPermit,
) {
    let service = service_fn(move |request| {
        let (shared, busy) = (Arc::clone(&shared), permit.request());
        async move {
            let answer = match refusal {
                None => shared.answer(request).await,
                Some(refusal) => shared.refuse(refusal),
            };
            drop(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_INTERVAL)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(target: "criscope::lifecycle", { error.message = %error }, "a connection of spans ended");
    }
}

/// Returns whether an endpoint leads to this address.
fn leads_to(endpoint: &str, address: SocketAddr) -> bool {
    let Ok(uri) = endpoint.parse::<http::Uri>() else {
        return false;
    };
    let same_port = uri.port_u16() == Some(address.port());
    let host = uri.host().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let here = match ip {
        Ok(ip) => ip == address.ip() || ip.is_loopback() && address.ip().is_unspecified(),
        Err(_) => host == "localhost",
    };
    same_port && here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_not_sent_to_oneself() {
        let own: SocketAddr = "127.0.0.1:4317".parse().expect("address");
        for (endpoint, loops) in [
            ("http://127.0.0.1:4317", true),
            ("http://localhost:4317/", true),
            ("http://127.0.0.1:4318", false),
            ("http://collector:4317", false),
            ("rubbish", false),
        ] {
            assert_eq!(leads_to(endpoint, own), loops, "{endpoint}");
        }
        let any: SocketAddr = "[::]:4317".parse().expect("address");
        assert!(leads_to("http://[::1]:4317", any));
    }
}
