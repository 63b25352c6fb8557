//! The agent's port: metrics and stories over TLS. Connections, request heads and their duration are bounded.
//!
//! | path | who | what |
//! |---|---|---|
//! | `/livez` | all | 200 while the agent runs |
//! | `/readyz` | all | 200 while the daemon on this node is ready |
//! | `/metrics` | `get` on `/metrics` | those of the daemon |
//! | `/criscope/debug/pods` and others, `format=json` | `get` on `/criscope/stories` | pages of the daemon, as JSON |

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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

use crate::certificate::Certificate;
use crate::daemon::{Daemon, Page};
use crate::guard::{Guard, Permission};
use crate::{NODE_HEADER, STORIES};

/// Most connections.
const CONNECTIONS: usize = 64;

/// Timeout of a TLS handshake and of a request head, also of one that never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest life of a connection.
const LONGEST: Duration = Duration::from_secs(600);

/// What is served.
#[derive(Debug)]
pub struct Service {
    /// The daemon of this node.
    pub daemon: Daemon,
    /// Who may read.
    pub guard: Guard,
    /// The name of the node.
    pub node: String,
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    certificate: Certificate,
    service: Service,
    stop: impl Future<Output = ()>,
) {
    let (certificate, service) = (Arc::new(certificate), Arc::new(service));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(event = "agent.accept", %error, "cannot accept a connection");
                // Out of descriptors, most likely.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // One too many is closed at once.
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let (certificate, service) = (Arc::clone(&certificate), Arc::clone(&service));
        tokio::spawn(async move {
            let served = timeout(LONGEST, connection(stream, &certificate, service)).await;
            if let Ok(Err(error)) = served {
                tracing::debug!(event = "agent.connection", %error, "a connection failed");
            }
            drop(slot);
        });
    }
}

async fn connection(
    stream: TcpStream,
    certificate: &Certificate,
    service: Arc<Service>,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(certificate.config());
    let stream = timeout(PATIENCE, acceptor.accept(stream)).await??;
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), answer)
        .await
        .map_err(io::Error::other)
}

impl Service {
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
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.daemon.get("/readyz", None).await {
                Ok(page) if page.status == StatusCode::OK => text(StatusCode::OK, "ok\n"),
                Ok(_) => text(StatusCode::SERVICE_UNAVAILABLE, "criscope is not ready\n"),
                Err(_) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "criscope does not answer\n",
                ),
            },
            "/metrics" => self.guarded(request, Permission::Metrics, "/metrics").await,
            path => match path.strip_prefix(STORIES).filter(|page| is_story(page)) {
                Some(page) => {
                    let query = request.uri().query().unwrap_or_default();
                    let page = format!("{page}?{query}");
                    if !query.split('&').any(|it| it == "format=json") {
                        return text(StatusCode::BAD_REQUEST, "only with format=json\n");
                    }
                    self.guarded(request, Permission::Stories, &page).await
                }
                None => text(StatusCode::NOT_FOUND, "page not found\n"),
            },
        }
    }

    async fn guarded(
        &self,
        request: &Request<Incoming>,
        permission: Permission,
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
        match self.daemon.get(page, accept).await {
            Ok(Page {
                status,
                content_type,
                body,
            }) => {
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                let headers = response.headers_mut();
                headers.extend(content_type.map(|it| (header::CONTENT_TYPE, it)));
                response
            }
            Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
        }
    }
}

/// Returns whether a page of the daemon is one of those that the plugin reads.
fn is_story(page: &str) -> bool {
    match page {
        "/" | "/debug/pods" | "/debug/calls" | "/debug/rpcz" | "/debug/images/pulls" => true,
        _ => page.strip_prefix("/debug/pods/").is_some_and(|pod| {
            pod.split('/').count() == 2 && pod.split('/').all(|it| !it.is_empty() && it != "..")
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
