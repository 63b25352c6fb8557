//! Tokens, limits and timeouts, and slow clients.

use cri_streaming::{SessionOutcome, SessionRequest, TokenOutcome, UrlError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::client::{Client, WAYS, lazy};
use super::http::{ask, connect, parts, spdy_head, websocket_head};
use super::server::{Fixture, settings};
use super::spdy::Spdy;
use crate::prelude::*;

/// Waits until the commands block because the client does not read; returns the bytes written.
pub(super) async fn stalled(fixture: &Fixture) -> usize {
    let written = || fixture.seen.flooded.load(Ordering::SeqCst);
    until_still("writing to stop", || {
        Some(written()).filter(|count| *count > 0)
    })
    .await
}

async fn status(url: &str, head: &str) -> u16 {
    ask(&mut connect(url).await, head).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_one_use_and_one_kind() {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["exit", "0"], "o");
    let (_, path) = parts(&url);
    let client = Client::connect(&url, WAYS[3], "o").await;
    assert_eq!(
        status(&url, &spdy_head(path, &["v4.channel.k8s.io"])).await,
        404
    );
    client.finish().await;
    // Used for another kind of session, it is consumed.
    let url = fixture.exec(&["exit", "0"], "o");
    let (_, path) = parts(&url);
    let other = path.replace("/exec/", "/attach/");
    let protocols = &["v4.channel.k8s.io"];
    assert_eq!(status(&url, &spdy_head(&other, protocols)).await, 404);
    assert_eq!(status(&url, &spdy_head(path, protocols)).await, 404);
    for path in [
        "/",
        "/exec/",
        "/exec",
        "/exec/a/b",
        "/exec/AAAAAAAAAAAAAAAAAAAAAA",
    ] {
        assert_eq!(
            status(&url, &spdy_head(path, protocols)).await,
            404,
            "{path}"
        );
    }
    let tokens = fixture.watch.tokens.lock().expect("no panic").clone();
    let count = |outcome| tokens.iter().filter(|o| **o == outcome).count();
    assert_eq!(count(TokenOutcome::Issued), 2);
    assert_eq!(count(TokenOutcome::Used), 1);
    assert!(count(TokenOutcome::Refused) >= 4);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thousand_and_first_token_is_refused() {
    let fixture = Fixture::start().await;
    for _ in 0..1000 {
        fixture.exec(&["exit", "0"], "o");
    }
    let request = SessionRequest::port_forward("pod".into(), &[]);
    let error = fixture.url(request).expect_err("full");
    assert_eq!(
        (error, criscope::runtime::Error::from(error).code()),
        (UrlError::Full, Code::ResourceExhausted)
    );
    let last = fixture
        .watch
        .tokens
        .lock()
        .expect("no panic")
        .last()
        .copied();
    assert_eq!(last, Some(TokenOutcome::Full));
    let empty = SessionRequest::port_forward(String::new(), &[]);
    let error = fixture.url(empty).expect_err("invalid");
    let error = criscope::runtime::Error::from(error);
    assert_eq!(error.code(), Code::InvalidArgument);
    fixture.stop().await;
}

#[tokio::test]
async fn a_token_expires_after_a_minute() {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["exit", "0"], "o");
    // Time is paused only here: with paused time, waiting for a socket advances the clock.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let (_, path) = parts(&url);
    let mut tcp = TcpStream::connect(parts(&url).0).await.expect("connected");
    let head = spdy_head(path, &["v4.channel.k8s.io"]);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 404");
    let tokens = fixture.watch.tokens.lock().expect("no panic").clone();
    assert!(tokens.contains(&TokenOutcome::Expired), "{tokens:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_upgrade_is_refused_and_consumes_the_token() {
    let fixture = Fixture::start().await;
    let head = |path: &str, first: &str, rest: &str| {
        format!("{first} {path} HTTP/1.1\r\nHost: x\r\n{rest}\r\n")
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let url = fixture.exec(&["exit", "0"], "o");
    let (_, path) = parts(&url);
    // These are refused before the token is checked.
    assert_eq!(status(&url, &head(path, "PUT", upgrade)).await, 405);
    let old = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
    assert_eq!(status(&url, &old).await, 505);
    assert_eq!(status(&url, &head(path, "POST", upgrade)).await, 400);
    assert_eq!(status(&url, &head(path, "POST", upgrade)).await, 404);
    let url = fixture.exec(&["exit", "0"], "o");
    let (_, path) = parts(&url);
    let mut tcp = connect(&url).await;
    let answer = ask(&mut tcp, &spdy_head(path, &["v9.channel.k8s.io"])).await;
    assert_eq!(answer.status, 403);
    assert_eq!(
        answer.header("x-accepted-stream-protocol-versions").len(),
        5
    );
    let url = fixture.forward("pod", &[]);
    let (_, path) = parts(&url);
    assert_eq!(
        status(&url, &websocket_head(path, "v4.channel.k8s.io")).await,
        400
    );
    // An endless request head.
    let mut tcp = connect(&url).await;
    let long = head(path, "GET", &format!("X: {}\r\n", "x".repeat(1 << 20)));
    let _ = tcp.write_all(long.as_bytes()).await;
    let mut answer = String::new();
    let _ = soon("the end", tcp.read_to_string(&mut answer)).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    // HTTP/2, which was not offered.
    let mut tcp = connect(&url).await;
    let _ = tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = soon("the end", tcp.read_to_end(&mut answer)).await;
    assert!(fixture.watch.ends.lock().expect("no panic").is_empty());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_sessions_at_once() {
    let fixture = Fixture::start().await;
    let mut clients = Vec::new();
    for i in 0..200 {
        let url = fixture.exec(&["cat"], "io");
        let way = WAYS[[3, 10][i % 2]];
        clients.push(Client::connect(&url, way, "io").await);
    }
    let running = || fixture.seen.running.load(Ordering::SeqCst);
    until_true("all of them run", async || running() == 200).await;
    let mut all = JoinSet::new();
    for (i, mut client) in clients.into_iter().enumerate() {
        all.spawn(async move {
            let data = vec![i as u8; 50_000];
            client.send(0, &data).await;
            client.end_input().await;
            assert_eq!(client.finish().await.out, data, "session {i}");
        });
    }
    while let Some(result) = all.join_next().await {
        result.expect("no panic");
    }
    assert_eq!(fixture.ends(200).await.len(), 200);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_a_session_is_refused_and_may_be_tried_again() {
    let mut settings = settings();
    settings.max_sessions = 2;
    let fixture = Fixture::with(settings).await;
    let mut clients = Vec::new();
    for way in [WAYS[3], WAYS[10]] {
        clients.push(Client::connect(&fixture.exec(&["cat"], "io"), way, "io").await);
    }
    let url = fixture.exec(&["exit", "0"], "o");
    let head = spdy_head(parts(&url).1, &["v4.channel.k8s.io"]);
    assert_eq!(status(&url, &head).await, 503);
    let mut first = clients.remove(0);
    first.end_input().await;
    first.finish().await;
    fixture.ends(1).await;
    Client::connect(&url, WAYS[3], "o").await.finish().await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_takes_little_and_harms_no_other() {
    let fixture = Fixture::start().await;
    for way in [WAYS[3], WAYS[10]] {
        let before = fixture.seen.flooded.load(Ordering::SeqCst);
        let url = fixture.exec(&["flood", "1000000000"], "o");
        let lazy = lazy(&url, way).await;
        let written = stalled(&fixture).await - before;
        // Kernel buffers of a connection, and a little of the server's.
        assert!(written < 16 << 20, "{way:?}: {written} bytes");
        let url = fixture.exec(&["say", "hello"], "o");
        let said = Client::connect(&url, way, "o").await.finish().await;
        assert_eq!(said.out, b"out:hello");
        drop(lazy);
    }
    until_true("the floods end", async || {
        fixture.seen.running.load(Ordering::SeqCst) == 0
    })
    .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_streams_is_closed() {
    let mut settings = settings();
    settings.creation_timeout = Duration::from_millis(200);
    let fixture = Fixture::with(settings).await;
    let url = fixture.exec(&["cat"], "io");
    let mut tcp = connect(&url).await;
    ask(&mut tcp, &spdy_head(parts(&url).1, &["v4.channel.k8s.io"])).await;
    let mut spdy = Spdy::new(tcp);
    spdy.open(&[("streamtype", "error")]).await;
    spdy.goodbye().await;
    drop(spdy);
    assert_eq!(fixture.end().await.outcome, SessionOutcome::NoStreams);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_is_closed() {
    let mut settings = settings();
    settings.idle_timeout = Duration::from_secs(2);
    let fixture = Fixture::with(settings).await;
    for (i, way) in [WAYS[3], WAYS[10]].into_iter().enumerate() {
        let url = fixture.exec(&["wait"], "o");
        let client = Client::connect(&url, way, "o").await;
        assert_eq!(client.output(5).await, b"begun");
        let said = client.cut().await;
        assert!(
            said.contains("Failure") && said.contains("too long"),
            "{said}"
        );
        assert_eq!(fixture.ends(i + 1).await[i].outcome, SessionOutcome::Idle);
    }
    let gone = || fixture.seen.gone.load(Ordering::SeqCst);
    until_true("the commands to see the client gone", async || gone() == 2).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_reported_to_all_clients() {
    let fixture = Fixture::start().await;
    let mut clients = Vec::new();
    for way in [WAYS[0], WAYS[3], WAYS[4], WAYS[6], WAYS[10]] {
        let url = fixture.exec(&["wait"], "o");
        let client = Client::connect(&url, way, "o").await;
        assert_eq!(client.output(5).await, b"begun");
        clients.push(client);
    }
    // A client that has not opened its streams.
    let url = fixture.exec(&["wait"], "o");
    let late = super::client::upgraded(connect(&url).await, &url, "v4.channel.k8s.io").await;
    let forward = super::forward::direct(&fixture.forward("pod", &[])).await;
    fixture.stop.cancel();
    for client in clients {
        // Clients treat a missing status as success.
        let is_failure = !client.has_status();
        let said = client.cut().await;
        assert!(is_failure || said.contains("Failure"), "{said}");
        assert!(said.contains("criscope is being stopped"), "{said}");
    }
    late.goodbye().await;
    forward.goodbye().await;
    drop((late, forward));
    let ends = fixture.ends(7).await;
    assert!(
        ends.iter()
            .all(|end| end.outcome == SessionOutcome::Shutdown),
        "{ends:?}"
    );
    fixture.stop().await;
}
