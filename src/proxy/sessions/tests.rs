//! When there is a URL of ours, and for how long.

use std::net::TcpStream;
use std::sync::Mutex;

use super::*;
use crate::telemetry::registry::Registry;
use crate::testing::{PATIENCE, until};
use cri_streaming::{SessionKind, TokenOutcome};

#[derive(Default)]
struct Seen(Mutex<Vec<TokenOutcome>>);

impl Observer for Seen {
    fn token(&self, outcome: TokenOutcome, n: u64) {
        for _ in 0..n {
            self.0.lock().expect("no panic").push(outcome);
        }
    }
}

fn issue(relay: &SessionProxy, kind: SessionKind) -> Result<String, UrlOutcome> {
    issue_for(relay, "http://127.0.0.1:1/exec/T", kind)
}

fn issue_for(relay: &SessionProxy, url: &str, kind: SessionKind) -> Result<String, UrlOutcome> {
    let about = SessionInfo {
        kind,
        id: "c".into(),
        command: vec![],
        extensions: http::Extensions::new(),
    };
    relay.issue(url::parse(url).expect("understood"), about)
}

async fn relay(max_sessions: usize) -> (SessionProxy, SessionProxyListener, Arc<Seen>) {
    let registry = Registry::new(prometheus::Registry::new(), []);
    let metrics = SessionProxyMetrics::register(&registry).expect("once");
    let seen = Arc::<Seen>::default();
    let (relay, listener) = SessionProxy::bind(max_sessions, metrics, vec![seen.clone()])
        .await
        .expect("bound");
    (relay, listener, seen)
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
    let (relay, _listener, seen) = relay(10).await;
    let first = path(&issue(&relay, SessionKind::Exec).expect("a URL"));
    let second = path(&issue(&relay, SessionKind::Attach).expect("a URL"));
    tokio::time::advance(Duration::from_secs(54)).await;
    assert!(relay.0.tokens.take(&first).is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(relay.0.tokens.take(&second).is_none());
    assert!(relay.0.tokens.take(&first).is_none(), "used");
    let (issued, used) = (TokenOutcome::Issued, TokenOutcome::Used);
    let (expired, refused) = (TokenOutcome::Expired, TokenOutcome::Refused);
    let seen = seen.0.lock().expect("no panic").clone();
    assert_eq!(seen, [issued, issued, used, expired, refused]);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_left_to_the_upstream() {
    let (one, _listener, _) = self::relay(1).await;
    let first = issue(&one, SessionKind::Exec).expect("room");
    // Whoever has our URL has a place, though nobody has come yet.
    assert_eq!(
        issue(&one, SessionKind::Exec),
        Err(UrlOutcome::LimitReached)
    );
    let waiting = one.0.tokens.take(&path(&first)).expect("it waits");
    assert_eq!(
        issue(&one, SessionKind::Exec),
        Err(UrlOutcome::LimitReached)
    );
    drop(waiting);
    issue(&one, SessionKind::Exec).expect("room again");
    tokio::time::advance(TOKEN_LIFETIME).await;
    issue(&one, SessionKind::Exec).expect("the first is too old");

    let (many, _listener, _) = self::relay(2 * MAX_TOKENS).await;
    for _ in 0..MAX_TOKENS {
        issue(&many, SessionKind::Exec).expect("room");
    }
    assert_eq!(
        issue(&many, SessionKind::Exec),
        Err(UrlOutcome::LimitReached)
    );
}

#[tokio::test]
async fn without_a_listener_there_is_no_url() {
    let (relay, listener, _) = self::relay(1).await;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(stop.clone()));
    assert!(issue(&relay, SessionKind::Exec).is_ok());
    stop.cancel();
    serving.await.expect("no panic");
    assert_eq!(
        issue(&relay, SessionKind::Exec),
        Err(UrlOutcome::Unavailable)
    );
}

#[tokio::test(start_paused = true)]
async fn a_port_closes_with_its_time() {
    let (relay, listener, seen) = relay(2 * tls::MAX_PORTS).await;
    let serving = tokio::spawn(listener.serve(CancellationToken::new()));
    let tls =
        |relay: &SessionProxy| issue_for(relay, "https://127.0.0.1:1/exec/T", SessionKind::Exec);
    let url = tls(&relay).expect("a URL");
    let address = url.split('/').nth(2).expect("an address").to_owned();
    // Connected without the runtime: while it waits for the kernel, it would let its own time pass.
    tokio::time::sleep(Duration::from_secs(54)).await;
    TcpStream::connect(&address).expect("somebody listens");
    tokio::time::sleep(Duration::from_secs(2)).await;
    until("a closed port", || TcpStream::connect(&address).err());
    // Once the client from before is known to have gone.
    let end = std::time::Instant::now() + PATIENCE;
    while seen.0.lock().expect("no panic").len() < 2 {
        assert!(std::time::Instant::now() < end, "its end is not told");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its place is free again.
    for _ in 0..tls::MAX_PORTS {
        tls(&relay).expect("room");
    }
    assert_eq!(tls(&relay), Err(UrlOutcome::LimitReached));
    let seen = seen.0.lock().expect("no panic").clone();
    assert_eq!(seen[..2], [TokenOutcome::Issued, TokenOutcome::Expired]);
    assert_eq!(seen.last(), Some(&TokenOutcome::Full));
    serving.abort();
}
