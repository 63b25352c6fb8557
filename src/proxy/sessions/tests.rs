//! When a URL is replaced, and how long its token lives.

use std::net::TcpStream;
use std::sync::Mutex;

use super::*;
use crate::telemetry::registry::Registry;
use crate::testing::{PATIENCE, until};
use cri_streaming::{SessionKind, TokenOutcome};

#[derive(Default)]
struct Seen(Mutex<Vec<TokenOutcome>>);

impl SessionObserver for Seen {
    fn token(&self, outcome: TokenOutcome, n: u64) {
        for _ in 0..n {
            self.0.lock().expect("no panic").push(outcome);
        }
    }
}

fn issue(proxy: &SessionProxy, kind: SessionKind) -> Result<String, UrlRewriteOutcome> {
    issue_for(proxy, "http://127.0.0.1:1/exec/T", kind)
}

fn issue_for(
    proxy: &SessionProxy,
    url: &str,
    kind: SessionKind,
) -> Result<String, UrlRewriteOutcome> {
    let about = SessionInfo {
        kind,
        id: "c".into(),
        command: vec![],
        extensions: http::Extensions::new(),
    };
    proxy.issue(url::parse(url).expect("valid"), about)
}

async fn bound(max_sessions: usize) -> (SessionProxy, SessionProxyListener, Arc<Seen>) {
    let registry = Registry::new(prometheus::Registry::new(), []);
    let metrics = SessionProxyMetrics::register(&registry).expect("once");
    let seen = Arc::<Seen>::default();
    let (proxy, listener) = SessionProxy::bind(max_sessions, metrics, vec![seen.clone()])
        .await
        .expect("bound");
    (proxy, listener, seen)
}

/// The path of a URL.
fn path(url: &str) -> String {
    url.splitn(4, '/')
        .last()
        .map(|path| format!("/{path}"))
        .expect("a path")
}

#[tokio::test(start_paused = true)]
async fn a_url_expires_before_that_of_the_upstream() {
    let (proxy, _listener, seen) = bound(10).await;
    let first = path(&issue(&proxy, SessionKind::Exec).expect("a URL"));
    let second = path(&issue(&proxy, SessionKind::Attach).expect("a URL"));
    tokio::time::advance(Duration::from_secs(54)).await;
    assert!(proxy.0.tokens.take(&first).is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(proxy.0.tokens.take(&second).is_none());
    assert!(proxy.0.tokens.take(&first).is_none(), "used");
    let (issued, used) = (TokenOutcome::Issued, TokenOutcome::Used);
    let (expired, refused) = (TokenOutcome::Expired, TokenOutcome::Refused);
    let seen = seen.0.lock().expect("no panic").clone();
    assert_eq!(seen, [issued, issued, used, expired, refused]);
}

#[tokio::test(start_paused = true)]
async fn sessions_beyond_the_limit_are_left_to_the_upstream() {
    let (one, _listener, _) = bound(1).await;
    let first = issue(&one, SessionKind::Exec).expect("room");
    // A token holds a slot, although its client has not connected yet.
    assert_eq!(
        issue(&one, SessionKind::Exec),
        Err(UrlRewriteOutcome::LimitReached)
    );
    let waiting = one.0.tokens.take(&path(&first)).expect("it waits");
    assert_eq!(
        issue(&one, SessionKind::Exec),
        Err(UrlRewriteOutcome::LimitReached)
    );
    drop(waiting);
    issue(&one, SessionKind::Exec).expect("room again");
    tokio::time::advance(TOKEN_LIFETIME).await;
    issue(&one, SessionKind::Exec).expect("the first is too old");

    let (many, _listener, _) = bound(2 * MAX_TOKENS).await;
    for _ in 0..MAX_TOKENS {
        issue(&many, SessionKind::Exec).expect("room");
    }
    assert_eq!(
        issue(&many, SessionKind::Exec),
        Err(UrlRewriteOutcome::LimitReached)
    );
}

#[tokio::test]
async fn without_a_listener_there_is_no_url() {
    let (proxy, listener, _) = bound(1).await;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(CancellationToken::new(), stop.clone()));
    assert!(issue(&proxy, SessionKind::Exec).is_ok());
    stop.cancel();
    serving.await.expect("no panic");
    assert_eq!(
        issue(&proxy, SessionKind::Exec),
        Err(UrlRewriteOutcome::Unavailable)
    );
}

#[tokio::test(start_paused = true)]
async fn a_port_closes_when_its_token_expires() {
    let (proxy, listener, seen) = bound(2 * tls::MAX_PORTS).await;
    let serving = tokio::spawn(listener.serve(CancellationToken::new(), CancellationToken::new()));
    let tls =
        |proxy: &SessionProxy| issue_for(proxy, "https://127.0.0.1:1/exec/T", SessionKind::Exec);
    let url = tls(&proxy).expect("a URL");
    let address = url.split('/').nth(2).expect("an address").to_owned();
    // Connected outside the async runtime: its paused clock would advance while it waits for the kernel.
    tokio::time::sleep(Duration::from_secs(54)).await;
    TcpStream::connect(&address).expect("a listener");
    tokio::time::sleep(Duration::from_secs(2)).await;
    until("a closed port", || TcpStream::connect(&address).err());
    // Once the previous client is known to have closed.
    let end = std::time::Instant::now() + PATIENCE;
    while seen.0.lock().expect("no panic").len() < 2 {
        assert!(std::time::Instant::now() < end, "its end is not reported");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its slot is free again.
    for _ in 0..tls::MAX_PORTS {
        tls(&proxy).expect("room");
    }
    assert_eq!(tls(&proxy), Err(UrlRewriteOutcome::LimitReached));
    let seen = seen.0.lock().expect("no panic").clone();
    assert_eq!(seen[..2], [TokenOutcome::Issued, TokenOutcome::Expired]);
    assert_eq!(seen.last(), Some(&TokenOutcome::Full));
    serving.abort();
}
