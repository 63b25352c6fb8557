//! The daemon's socket for agents, or its port, with pages that tests set.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

/// Pages by path and query, or by path.
type Pages = Arc<Mutex<HashMap<String, (u16, String)>>>;

#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    /// What `--daemon` names.
    pub(crate) address: String,
    pages: Pages,
    /// The directory of the socket.
    _dir: Arc<tempfile::TempDir>,
}

impl Daemon {
    /// On a unix socket, as in a cluster.
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("criscope.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        let daemon = Self::with_pages(format!("unix://{}", socket.display()), dir);
        let pages = Arc::clone(&daemon.pages);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&pages)));
            }
        });
        daemon
    }

    /// On a port of loopback, as beside an agent with the node's network.
    pub(crate) async fn on_a_port() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let daemon = Self::with_pages(address, tempfile::tempdir().expect("a directory"));
        let pages = Arc::clone(&daemon.pages);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&pages)));
            }
        });
        daemon
    }

    fn with_pages(address: String, dir: tempfile::TempDir) -> Self {
        let daemon = Self {
            address,
            pages: Pages::default(),
            _dir: Arc::new(dir),
        };
        daemon.set("/readyz", 200, "ok\n");
        daemon.set("/metrics", 200, "criscope_up 1\n");
        daemon.set(
            "/debug/pods",
            200,
            r#"{"now_unix_us":0,"episodes":[],"pods":[],"known":0,"forgotten":0}"#,
        );
        daemon
    }

    pub(crate) fn set(&self, path: &str, status: u16, body: &str) {
        let mut pages = self.pages.lock().expect("pages");
        pages.insert(path.to_owned(), (status, body.to_owned()));
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, pages: Pages) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = page(&pages, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

fn page(pages: &Pages, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let pages = pages.lock().expect("pages");
    let uri = request.uri();
    let found = uri.path_and_query().and_then(|it| pages.get(it.as_str()));
    let (status, body) = match found.or_else(|| pages.get(uri.path())) {
        Some((status, body)) => (*status, body.clone()),
        None => (404, "page not found\n".to_owned()),
    };
    let response = Response::builder().status(status);
    response.body(Full::new(body.into())).expect("a response")
}
