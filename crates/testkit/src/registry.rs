//! An in-process registry that records requests and misbehaves as its hook says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use criscope_image::Digest;
use futures_util::stream;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::image::Image;
use crate::pki::{Pair, server_config};

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: String,
    /// The number of earlier requests for this path.
    pub before: usize,
}

/// Replaces the registry's response if it returns one.
pub type Hook = dyn Fn(&Asked) -> Option<Response> + Send + Sync;

#[derive(Default)]
struct Content {
    /// By path.
    files: Mutex<HashMap<String, (String, Bytes)>>,
    log: Mutex<Vec<Asked>>,
    hook: Mutex<Option<Arc<Hook>>>,
}

/// A running registry. Dropping it stops it.
pub struct Registry {
    pub address: SocketAddr,
    content: Arc<Content>,
    task: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registry {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"))
    }

    /// Serves on a listener, which may be in another network namespace.
    pub fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("an address");
        let content = Arc::new(Content::default());
        let service = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&content));
        let task = tokio::spawn(async move {
            axum::serve(listener, service).await.expect("serve");
        });
        Self {
            address,
            content,
            task,
        }
    }

    /// The full name of an image in it.
    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    pub fn put(&self, path: &str, media_type: &str, bytes: &[u8]) {
        let file = (media_type.to_owned(), Bytes::copy_from_slice(bytes));
        self.content
            .files
            .lock()
            .expect("files")
            .insert(format!("/v2/{path}"), file);
    }

    /// Pushes an image, and returns its full name.
    pub fn push(&self, repository: &str, tag: &str, image: &Image) -> String {
        for blob in image.layers.iter().chain([&image.config]) {
            self.put(
                &format!("{repository}/blobs/{}", Digest::sha256(blob)),
                "application/octet-stream",
                blob,
            );
        }
        self.put_manifest(repository, tag, image.media_type, &image.manifest);
        self.name(&format!("{repository}:{tag}"))
    }

    pub fn put_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: &[u8]) {
        for version in [tag, Digest::sha256(bytes).as_str()] {
            self.put(
                &format!("{repository}/manifests/{version}"),
                media_type,
                bytes,
            );
        }
    }

    /// Sets the hook.
    pub fn hook(&self, hook: impl Fn(&Asked) -> Option<Response> + Send + Sync + 'static) {
        *self.content.hook.lock().expect("hook") = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn behave(&self) {
        *self.content.hook.lock().expect("hook") = None;
    }

    /// The requests whose path contains `part`.
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        let log = self.content.log.lock().expect("log");
        log.iter()
            .filter(|asked| asked.path.contains(part))
            .cloned()
            .collect()
    }

    pub fn forget(&self) {
        self.content.log.lock().expect("log").clear();
    }
}

async fn answer(State(content): State<Arc<Content>>, request: Request) -> Response {
    let (request, body) = request.into_parts();
    let path = request.uri.path().to_owned();
    let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    let mut log = content.log.lock().expect("log");
    let asked = Asked {
        method: request.method.clone(),
        before: log.iter().filter(|asked| asked.path == path).count(),
        query: request.uri.query().unwrap_or_default().to_owned(),
        headers: request.headers.clone(),
        body: String::from_utf8_lossy(&body).into_owned(),
        path,
    };
    log.push(asked.clone());
    drop(log);
    let hook = content.hook.lock().expect("hook").clone();
    if let Some(response) = hook.and_then(|hook| hook(&asked)) {
        return response;
    }
    let files = content.files.lock().expect("files");
    match files.get(&asked.path) {
        Some((media_type, bytes)) => file(&asked, media_type, bytes),
        None => status(
            404,
            "{\"errors\":[{\"code\":\"NAME_UNKNOWN\",\"message\":\"not here\"}]}",
        ),
    }
}

fn file(asked: &Asked, media_type: &str, bytes: &Bytes) -> Response {
    let range = asked
        .headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok());
    let part = range.and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let end = match last {
            "" => bytes.len(),
            last => last.parse::<usize>().ok()? + 1,
        };
        Some(first.parse::<usize>().ok()?..end.min(bytes.len()))
    });
    let answer = Response::builder()
        .header(header::CONTENT_TYPE, media_type)
        .header(header::ACCEPT_RANGES, "bytes");
    let answer = match &part {
        Some(part) => {
            let range = format!("bytes {}-{}/{}", part.start, part.end - 1, bytes.len());
            answer.status(206).header(header::CONTENT_RANGE, range)
        }
        None => answer,
    };
    let answer = if asked.path.contains("/manifests/") {
        answer.header("docker-content-digest", Digest::sha256(bytes).as_str())
    } else {
        answer
    };
    let body = bytes.slice(part.unwrap_or(0..bytes.len()));
    answer
        .header(header::CONTENT_LENGTH, body.len())
        .body(Body::from(body))
        .expect("an answer")
}

pub fn status(code: u16, body: &str) -> Response {
    let status = StatusCode::from_u16(code).expect("a status");
    let answer = Response::builder().status(status);
    answer.body(Body::from(body.to_owned())).expect("an answer")
}

/// The same answer with a further header.
pub fn with_header(mut answer: Response, name: &'static str, value: &str) -> Response {
    let value = value.parse().expect("a header");
    answer.headers_mut().append(name, value);
    answer
}

/// Sends this number of bytes, then closes the connection.
pub fn cut(bytes: &[u8], after: usize) -> Response {
    let part = Bytes::copy_from_slice(&bytes[..after]);
    let body = stream::iter([Ok(part), Err(std::io::Error::other("cut"))]);
    let answer = Response::builder().header(header::CONTENT_LENGTH, bytes.len());
    answer.body(Body::from_stream(body)).expect("an answer")
}

/// Sends this number of bytes, then stalls.
pub fn stall(bytes: &[u8], after: usize) -> Response {
    use futures_util::StreamExt as _;
    let part = Bytes::copy_from_slice(&bytes[..after]);
    let body = stream::iter([Ok::<_, std::io::Error>(part)]).chain(stream::pending());
    let answer = Response::builder().header(header::CONTENT_LENGTH, bytes.len());
    answer.body(Body::from_stream(body)).expect("an answer")
}

/// TLS in front of a registry. Dropping it stops it.
pub struct TlsFront {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsFront {
    /// Serves with this certificate what `registry` serves without TLS.
    pub async fn start(registry: &Registry, pair: &Pair) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(server_config(pair, None, b"http/1.1"));
        let to = registry.address;
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(connection).await else {
                        return;
                    };
                    let mut server = TcpStream::connect(to).await.expect("the registry");
                    let _ended = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, task }
    }
}

/// A server that accepts connections and says nothing. Dropping it stops it.
pub struct SilentServer {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for SilentServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SilentServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                open.push(connection);
            }
        });
        Self { address, task }
    }
}

/// Sends this number of bytes at once, then a piece every 100 ms, so that the download never stalls.
pub fn trickle(bytes: &[u8], first: usize, piece: usize) -> Response {
    use futures_util::StreamExt as _;
    let (head, rest) = bytes.split_at(first);
    let head = Bytes::copy_from_slice(head);
    let pieces: Vec<_> = rest.chunks(piece).map(Bytes::copy_from_slice).collect();
    let slow = stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        Ok::<_, std::io::Error>(piece)
    });
    let body = stream::iter([Ok(head)]).chain(slow);
    let answer = Response::builder().header(header::CONTENT_LENGTH, bytes.len());
    answer.body(Body::from_stream(body)).expect("an answer")
}

/// An endless body of zeros.
pub fn endless() -> Response {
    let zeros = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 4096])));
    Response::new(Body::from_stream(zeros))
}
