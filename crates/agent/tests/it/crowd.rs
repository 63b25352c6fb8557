//! More connections and requests than the agent serves at a time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use crate::agent::{AGENT, free_address, get};
use crate::api::Api;
use crate::api::proxy::connect;
use crate::support::{Program, start, until};

/// The number of connections that the agent serves at a time.
const LIMIT: usize = 64;

/// A daemon that does not answer until it is told to, and the agent before it.
struct SlowNode {
    daemon: UnixListener,
    agent: std::net::SocketAddr,
    _program: Program,
    _dir: tempfile::TempDir,
}

impl SlowNode {
    async fn start(api: &Api) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("criscope.sock");
        let daemon = UnixListener::bind(&socket).expect("bound");
        let agent = free_address();
        let (listen, of) = (
            format!("--listen={agent}"),
            format!("--daemon=unix://{}", socket.display()),
        );
        let args = ["serve", "--node=node-1", "--events=false", &listen, &of];
        let program = start(AGENT, &args, &api.kubeconfig("agent"));
        until("the agent", async || TcpStream::connect(agent).await.ok()).await;
        Self {
            daemon,
            agent,
            _program: program,
            _dir: dir,
        }
    }

    /// The next request that the agent sends to the daemon.
    async fn asked(&self) -> UnixStream {
        let accepted = timeout(Duration::from_secs(60), self.daemon.accept()).await;
        accepted.expect("a request").expect("accepted").0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_make_room_and_requests_in_progress_stay() {
    let api = Api::start().await;
    let node = SlowNode::start(&api).await;
    let address = node.agent;
    // The first of all connections, so that it is the oldest.
    let slow = tokio::spawn(async move { get(address, "/readyz", &[]).await });
    let mut asked = node.asked().await;
    let mut silent = Vec::new();
    let mut with_tls = Vec::new();
    for n in 0..2 * LIMIT {
        let stream = TcpStream::connect(address).await.expect("connected");
        if n % 2 == 0 {
            silent.push(stream);
        } else {
            with_tls.push(connect(stream).await.expect("TLS"));
        }
        // A request is answered however many there are.
        if n == LIMIT + 2 {
            assert_eq!(get(address, "/livez", &[]).await.0.as_u16(), 200);
        }
    }
    assert_eq!(get(address, "/livez", &[]).await.0.as_u16(), 200);
    // Those that have said nothing for longest were closed.
    let mut rest = Vec::new();
    let closed = silent[0].read_to_end(&mut rest);
    let closed = timeout(Duration::from_secs(5), closed).await;
    assert!(closed.is_ok(), "the first silent connection is still open");
    // The oldest connection has a request in progress.
    assert!(!slow.is_finished());
    asked
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n")
        .await
        .expect("answered");
    assert_eq!(slow.await.expect("no panic").0.as_u16(), 200);
}

/// A daemon or an API server that hangs holds up requests. The kubelet's probe is none of them.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_leave_room_for_the_liveness_probe() {
    let api = Api::start().await;
    let node = SlowNode::start(&api).await;
    let address = node.agent;
    let mut waiting = Vec::new();
    // Not more connections than the agent keeps, so that none is closed for another.
    for _ in 0..LIMIT - 4 {
        waiting.push(tokio::spawn(
            async move { get(address, "/readyz", &[]).await },
        ));
    }
    // The daemon is asked by some of them, and the others are told to try again.
    let mut asked = vec![node.asked().await];
    let alive = timeout(Duration::from_secs(4), get(address, "/livez", &[])).await;
    assert_eq!(alive.expect("in time").0.as_u16(), 200);
    while let Ok(Ok((stream, _))) = timeout(Duration::from_millis(500), node.daemon.accept()).await
    {
        asked.push(stream);
    }
    assert!(asked.len() < LIMIT, "{} requests wait", asked.len());
    drop(asked);
    let mut refused = 0;
    for request in waiting {
        let (status, text) = request.await.expect("no panic");
        assert_eq!(status.as_u16(), 503, "{text}");
        refused += usize::from(text.contains("too many requests"));
    }
    assert!(refused > 0);
}
