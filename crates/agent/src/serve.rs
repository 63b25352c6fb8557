//! The agent's port: metrics and stories over TLS. Connections, request heads and their duration are bounded; at the limit a
//! connection without a request is closed for a new one. So a silent client locks out no other. Neither do requests that wait
//! for the API server or the daemon: the kubelet's probe of `/livez` waits for neither.
//!
//! | path | allowed for | content |
//! |---|---|---|
//! | `/livez` | all | 200 while the agent runs |
//! | `/readyz` | all | 200 while the daemon on this node is ready |
//! | `/metrics` | `get` on `/metrics` | state of the installation, and metrics of the daemon; `criscope_bypassed` alone while it is bypassed and down |
//! | `/criscope/debug/pods` and others, `format=json` | `get` on `/criscope/stories` | pages of the daemon, as JSON |

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use criscope::lifecycle::node::rollout::InstallState;
use criscope::uds::limit::{ConnectionLimit, ConnectionPermit, EvictionPolicy};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::certificate::AgentCertificate;
use crate::compress;
use crate::daemon::{DaemonClient, DaemonPage};
use crate::guard::{AccessGuard, AgentPermission};
use crate::rollout::local_state::{InstallStateFile, metrics_text};
use crate::{NODE_HEADER, STORIES_PREFIX};

/// Upper bound of connections. At the limit, the connection that is idle for longest is closed for a new one.
const MAX_CONNECTIONS: usize = 64;

/// Upper bound of requests that wait for the API server or the daemon; others get status 503.
const MAX_WAITING_REQUESTS: usize = 48;

/// Time limit for a TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for a connection, which carries one request, until its response is read.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);

/// What can be told in place of a daemon that is down and bypassed, in the text format of Prometheus.
const BYPASSED_METRICS: &str = "# TYPE criscope_bypassed gauge\ncriscope_bypassed 1\n";

/// The service on the agent's port.
#[derive(Debug)]
pub struct AgentService {
    daemon: DaemonClient,
    /// The state of the installation, if it can be known.
    install_state: Option<InstallStateFile>,
    guard: AccessGuard,
    node: String,
    /// Permits of requests that wait.
    waiting: Semaphore,
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    certificate: AgentCertificate,
    service: AgentService,
    stop: impl Future<Output = ()>,
) {
    let (certificate, service) = (Arc::new(certificate), Arc::new(service));
    let limit = ConnectionLimit::new(MAX_CONNECTIONS, EvictionPolicy::Idle);
    tokio::pin!(stop);
    loop {
        let next = tokio::select! {
            () = &mut stop => return,
            next = accept(&listener, &limit) => next,
        };
        let (stream, permit) = match next {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(event = "agent.accept", %error, "cannot accept a connection");
                // The process is out of descriptors, most likely.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (certificate, service) = (Arc::clone(&certificate), Arc::clone(&service));
        tokio::spawn(async move {
            let served = timeout(
                CONNECTION_LIFETIME,
                connection(stream, &certificate, &service, &permit),
            );
            tokio::select! {
                // This arm comes first, so that a request that has arrived is found before its connection is closed.
                biased;
                served = served => if let Ok(Err(error)) = served {
                    tracing::debug!(event = "agent.connection", %error, "a connection failed");
                },
                () = permit.wanted_while_idle() => {}
            }
        });
    }
}

/// The next connection, when there is room for it.
async fn accept(
    listener: &TcpListener,
    limit: &Arc<ConnectionLimit>,
) -> io::Result<(TcpStream, ConnectionPermit)> {
    let (stream, _) = listener.accept().await?;
    Ok((stream, limit.take().await))
}

async fn connection(
    stream: TcpStream,
    certificate: &AgentCertificate,
    service: &AgentService,
    permit: &ConnectionPermit,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(certificate.config());
    let stream = timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await??;
    // The permit is held to the end of the connection, because the response is sent after the service returns.
    let in_progress = OnceLock::new();
    let answer = service_fn(|request| {
        let (busy, in_progress) = (permit.request(), &in_progress);
        async move {
            let response = service.answer(request).await;
            let _ = in_progress.set(busy);
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(64)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
        .map_err(io::Error::other)
}

impl AgentService {
    /// Serves the pages of `daemon` to users whom `guard` admits.
    pub fn new(daemon: DaemonClient, guard: AccessGuard, node: String) -> Self {
        Self {
            install_state: daemon.directory().map(InstallStateFile::at),
            daemon,
            guard,
            node,
            waiting: Semaphore::new(MAX_WAITING_REQUESTS),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = self.page(&request).await;
        let headers = response.headers_mut();
        if let Ok(node) = HeaderValue::from_str(&self.node) {
            headers.insert(NODE_HEADER, node);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        response
    }

    async fn page(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        let path = request.uri().path();
        if path == "/livez" {
            return text(StatusCode::OK, "ok\n");
        }
        let Ok(_waits) = self.waiting.try_acquire() else {
            return text(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests are waiting; try again\n",
            );
        };
        match path {
            "/readyz" => match self.daemon.get("/readyz", None).await {
                Ok(page) if page.status == StatusCode::OK => text(StatusCode::OK, "ok\n"),
                Ok(_) => text(StatusCode::SERVICE_UNAVAILABLE, "criscope is not ready\n"),
                Err(_) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "criscope does not answer\n",
                ),
            },
            "/metrics" => {
                self.guarded(request, AgentPermission::Metrics, "/metrics")
                    .await
            }
            path => match path
                .strip_prefix(STORIES_PREFIX)
                .filter(|page| is_story(page))
            {
                Some(page) => {
                    let query = request.uri().query().unwrap_or_default();
                    let page = format!("{page}?{query}");
                    if !query.split('&').any(|part| part == "format=json") {
                        return text(StatusCode::BAD_REQUEST, "only with format=json\n");
                    }
                    self.guarded(request, AgentPermission::Stories, &page).await
                }
                None => text(StatusCode::NOT_FOUND, "page not found\n"),
            },
        }
    }

    async fn guarded(
        &self,
        request: &Request<Incoming>,
        permission: AgentPermission,
        page: &str,
    ) -> Response<Full<Bytes>> {
        if let Err(refusal) = self.guard.admit(request.headers(), permission).await {
            let mut response = text(refusal.status(), format!("{refusal}\n"));
            if refusal.status() == StatusCode::UNAUTHORIZED {
                let bearer = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, bearer);
            }
            return response;
        }
        let accept = request.headers().get(header::ACCEPT);
        let is_metrics = permission == AgentPermission::Metrics;
        let state = self.install_state.as_ref().filter(|_| is_metrics);
        let state = state.and_then(InstallStateFile::read);
        let own = state.map(metrics_text).unwrap_or_default();
        match self.daemon.get(page, accept).await {
            Ok(DaemonPage {
                status,
                content_type,
                body,
            }) => {
                let body = if status == StatusCode::OK && !own.is_empty() {
                    [own.as_bytes(), &body].concat().into()
                } else {
                    body
                };
                let mut response = if is_metrics {
                    compress::response(request.headers(), body)
                } else {
                    Response::new(Full::new(body))
                };
                *response.status_mut() = status;
                let headers = response.headers_mut();
                headers.extend(content_type.map(|value| (header::CONTENT_TYPE, value)));
                response
            }
            Err(_) if is_metrics && self.daemon.bypass_files().since().is_some() => {
                text(StatusCode::OK, own + BYPASSED_METRICS)
            }
            // A node that waits for its turn, or has failed, has no daemon.
            Err(_) if state.is_some_and(|state| state != InstallState::Done) => {
                text(StatusCode::OK, own)
            }
            Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
        }
    }
}

/// Returns whether the plugin reads this page of the daemon.
fn is_story(page: &str) -> bool {
    match page {
        "/" | "/debug/pods" | "/debug/calls" | "/debug/rpcz" | "/debug/images/pulls" => true,
        _ => page.strip_prefix("/debug/pods/").is_some_and(|pod| {
            pod.split('/').count() == 2
                && pod.split('/').all(|part| !part.is_empty() && part != "..")
        }),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pages_of_stories_are_passed_on() {
        for page in ["/", "/debug/pods", "/debug/pods/shop/web-0"] {
            assert!(is_story(page), "{page}");
        }
        for page in [
            "",
            "/metrics",
            "/debug/config",
            "/debug/flight",
            "/debug/pods/a",
            "/debug/pods/a/b/c",
            "/debug/pods/../config",
            "/debug/pods//config",
        ] {
            assert!(!is_story(page), "{page}");
        }
    }
}
