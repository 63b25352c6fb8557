//! A CRI server that runs a script for each call and records requests byte for byte.
//!
//! criscope's own calls (probe and lists, recognized by user agent) are answered from a [`Node`] and counted separately.

mod node;
mod player;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::HeaderMap;
use http::request::Parts;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::node::Node;
use crate::script::{self, Step};
use crate::{lock, until, until_true};

/// How a request body ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestEnd {
    /// Not yet.
    #[default]
    Open,
    /// With END_STREAM.
    EndStream,
    /// With trailers.
    Trailers(HeaderMap),
    /// The stream was reset.
    Reset(Reason),
    /// The connection broke.
    Lost,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: http::Method,
    /// Scheme, authority and path.
    pub uri: http::Uri,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub end: RequestEnd,
    /// The reset that ended the response.
    pub reset: Option<Reason>,
    /// Bytes of data passed to HTTP/2.
    pub sent: usize,
    /// Whether the script has finished.
    pub done: bool,
}

pub type Record = Arc<Mutex<Seen>>;

/// The behaviour of a new connection.
#[derive(Clone, Debug)]
pub enum Mode {
    /// HTTP/2.
    Grpc,
    /// Sends these bytes without reading first.
    Says(Bytes),
    /// Sends nothing.
    Silent,
    /// Closes the connection.
    Closes,
}

type Handler = Arc<dyn Fn(&Parts) -> Vec<Step> + Send + Sync>;

struct Shared {
    handler: Mutex<Handler>,
    mode: Mutex<Mode>,
    node: Mutex<Node>,
    calls: Mutex<Vec<Record>>,
    own: AtomicUsize,
    open: AtomicUsize,
}

/// A running server. Dropping it stops it.
pub struct Fake {
    _dir: TempDir,
    path: PathBuf,
    shared: Arc<Shared>,
    running: Mutex<Option<CancellationToken>>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// A runtime that answers every call with an empty message.
    pub fn new() -> Self {
        let fake = Self::absent();
        fake.start();
        fake
    }

    /// A runtime that does not listen yet.
    pub fn absent() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        Self {
            path: dir.path().join("runtime.sock"),
            _dir: dir,
            shared: Arc::new(Shared {
                handler: Mutex::new(Arc::new(|_| script::empty())),
                mode: Mutex::new(Mode::Grpc),
                node: Mutex::default(),
                calls: Mutex::default(),
                own: AtomicUsize::new(0),
                open: AtomicUsize::new(0),
            }),
            running: Mutex::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts listening.
    pub fn start(&self) {
        let listener = UnixListener::bind(&self.path).expect("bind");
        let stop = CancellationToken::new();
        *lock(&self.running) = Some(stop.clone());
        tokio::spawn(accept(listener, Arc::clone(&self.shared), stop));
    }

    /// Closes every connection, stops listening and removes the socket.
    pub fn stop(&self) {
        if let Some(stop) = lock(&self.running).take() {
            stop.cancel();
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Answers calls with the script that the handler returns, except criscope's own.
    pub fn on(&self, handler: impl Fn(&Parts) -> Vec<Step> + Send + Sync + 'static) {
        *lock(&self.shared.handler) = Arc::new(handler);
    }

    /// Answers every call with these steps.
    pub fn always(&self, steps: Vec<Step>) {
        self.on(move |_| steps.clone());
    }

    /// Sets the behaviour of new connections.
    pub fn set_mode(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
    }

    /// The data for criscope's own calls.
    pub fn node(&self) -> MutexGuard<'_, Node> {
        lock(&self.shared.node)
    }

    /// Copies of the requests so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        let calls = lock(&self.shared.calls);
        calls.iter().map(|call| lock(call).clone()).collect()
    }

    /// Removes and returns the requests that match.
    pub fn take(&self, matches: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let mut taken = Vec::new();
        lock(&self.shared.calls).retain(|call| {
            let call = lock(call);
            let out = matches(&call);
            if out {
                taken.push(call.clone());
            }
            !out
        });
        taken
    }

    /// The number of calls so far.
    pub fn count(&self) -> usize {
        lock(&self.shared.calls).len()
    }

    /// Waits for a request that matches.
    pub async fn wait(&self, what: &str, matches: impl Fn(&Seen) -> bool) -> Seen {
        let find = || async { self.seen().into_iter().find(|seen| matches(seen)) };
        until(what, find).await
    }

    /// Waits for at least `n` calls.
    pub async fn wait_count(&self, n: usize) {
        until_true("calls at the runtime", async || self.count() >= n).await;
    }

    /// Waits until criscope has made all of its own calls and only its probe is connected.
    pub async fn wait_settled(&self) {
        until_true(
            "criscope's own calls",
            async || // Version, Status, and two lists.
            self.own() >= 4 && self.connections() == 1,
        )
        .await;
    }

    /// The number of open connections, criscope's own included.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The number of criscope's own calls.
    pub fn own(&self) -> usize {
        self.shared.own.load(Ordering::SeqCst)
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted.expect("accept").0,
        };
        shared.open.fetch_add(1, Ordering::SeqCst);
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let mode = lock(&shared.mode).clone();
            // Many tests break connections.
            match mode {
                Mode::Grpc => drop(stop.run_until_cancelled(serve(socket, &shared)).await),
                Mode::Says(bytes) => drop(stop.run_until_cancelled(speak(socket, &bytes)).await),
                Mode::Silent => {
                    stop.cancelled().await;
                    drop(socket);
                }
                Mode::Closes => drop(socket),
            }
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn speak(mut socket: UnixStream, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(bytes).await?;
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}

/// What a script does to its connection.
enum Control {
    Close,
    GoAway,
    Abort(Reason),
}

async fn serve(socket: UnixStream, shared: &Arc<Shared>) -> Result<(), h2::Error> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(4 << 20)
        .initial_connection_window_size(64 << 20)
        .max_header_list_size(8 << 20)
        .max_pending_accept_reset_streams(100_000)
        .max_concurrent_reset_streams(100_000)
        .handshake::<_, Bytes>(socket)
        .await?;
    let (control, mut controls) = mpsc::channel(16);
    loop {
        let request = tokio::select! {
            biased;
            Some(control) = controls.recv() => match control {
                Control::Close => {
                    // Flushes queued frames first.
                    let _ = futures_util::poll!(Box::pin(connection.accept()));
                    return Ok(());
                }
                Control::GoAway => {
                    connection.graceful_shutdown();
                    continue;
                }
                Control::Abort(reason) => {
                    connection.abrupt_shutdown(reason);
                    continue;
                }
            },
            request = connection.accept() => request,
        };
        match request {
            Some(Ok((request, respond))) => {
                tokio::spawn(answer(
                    request,
                    respond,
                    Arc::clone(shared),
                    control.clone(),
                ));
            }
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        }
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
    control: mpsc::Sender<Control>,
) {
    let (head, body) = request.into_parts();
    let agent = head.headers.get(http::header::USER_AGENT);
    if agent.is_some_and(|agent| agent.as_bytes().starts_with(b"criscope/")) {
        shared.own.fetch_add(1, Ordering::SeqCst);
        return node::answer(&head, body, respond, &shared.node).await;
    }
    let record = Arc::new(Mutex::new(Seen {
        method: head.method.clone(),
        uri: head.uri.clone(),
        headers: head.headers.clone(),
        body: Vec::new(),
        end: RequestEnd::Open,
        reset: None,
        sent: 0,
        done: false,
    }));
    lock(&shared.calls).push(Arc::clone(&record));
    let handler = Arc::clone(&lock(&shared.handler));
    let steps = if lock(&shared.node).knows(head.uri.path()) {
        handler(&head)
    } else {
        script::error(12, "unknown service")
    };
    player::play(steps, body, respond, record, control).await;
}
