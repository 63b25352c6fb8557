//! Clients under backpressure: the connection is not read, but vanished clients are still detected.

use cri_streaming::{SessionKind, SessionOutcome};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{Client, QUIET, WAYS, Wire, open};
use super::forward::{direct, tunnelled};
use super::http::websocket;
use super::server::{Fixture, settings};
use super::spdy::Spdy;
use crate::prelude::*;

/// SPDY, WebSocket, and WebSocket in base64.
const SOME: [(&str, &str); 3] = [WAYS[3], WAYS[10], WAYS[9]];

/// The id of a PING that no client sends.
const UNASKED: u32 = u32::MAX;

/// Longer than a client is blocked before the server pings it.
const A_WHILE: Duration = Duration::from_secs(7);

/// More bytes than all buffers: a client that has sent this many was blocked.
const HELD_BACK: usize = 2 << 20;

/// A listener that accepts connections and reads nothing.
async fn deaf() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            held.push(tcp);
        }
    });
    port
}

/// Sends to a port until it blocks.
async fn fill<T>(spdy: &mut Spdy<T>, port: u16)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (_, data) = open(spdy, 0, port).await;
    let piece = [b'x'; 30_000];
    while timeout(QUIET, spdy.send(data, &piece, false)).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_client_is_detected_under_backpressure() {
    let fixture = Fixture::start().await;
    let mut clients = JoinSet::new();
    for way in SOME {
        let url = fixture.exec(&["wait"], "io");
        clients.spawn(async move {
            let mut client = Client::connect(&url, way, "io").await;
            client.fill().await;
        });
    }
    clients.join_all().await;
    let ends = fixture.ends(SOME.len()).await;
    for end in ends {
        assert_eq!(end.outcome, SessionOutcome::ClientGone, "{end:?}");
    }
    let gone = || fixture.seen.gone.load(Ordering::SeqCst);
    until_true("the commands to see the client gone", async || {
        gone() == SOME.len()
    })
    .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_port_forward_client_is_detected_too() {
    let fixture = Fixture::start().await;
    let port = deaf().await;
    let mut clients = JoinSet::new();
    let url = fixture.forward("pod", &[]);
    clients.spawn(async move { fill(&mut direct(&url).await, port).await });
    let url = fixture.forward("pod", &[]);
    clients.spawn(async move { fill(&mut tunnelled(&url).await, port).await });
    let url = fixture.forward("pod", &[port]);
    clients.spawn(async move {
        let mut socket = websocket(&url, "v4.channel.k8s.io").await;
        let piece = [b'x'; 30_000];
        while timeout(QUIET, socket.send(0, &piece)).await.is_ok() {}
    });
    clients.join_all().await;
    for end in fixture.ends(3).await {
        assert_eq!(end.kind, SessionKind::PortForward);
        // Over SPDY it is always the client that closes it.
        let is_over = matches!(
            end.outcome,
            SessionOutcome::Done | SessionOutcome::ClientGone
        );
        assert!(is_over, "{end:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_client_is_pinged_and_loses_nothing() {
    let fixture = Fixture::start().await;
    // Long enough even if it takes the client a while to block.
    let late = (2 * A_WHILE).as_millis().to_string();
    // Generated before the command starts waiting, because it takes a while.
    let text: Vec<u8> = (0..12_u32 << 20).flat_map(u32::to_be_bytes).collect();
    let text = Arc::new(text);
    let mut clients = JoinSet::new();
    for way in [WAYS[3], WAYS[10]] {
        let url = fixture.exec(&["late", &late], "io");
        let text = Arc::clone(&text);
        clients.spawn(async move {
            let mut client = Client::connect(&url, way, "io").await;
            for piece in text.chunks(30_000) {
                client.send(0, piece).await;
            }
            match &client.wire {
                Wire::Spdy(spdy, _) => assert!(spdy.pings().starts_with(&[UNASKED])),
                Wire::WebSocket(socket, _) => assert!(socket.pongs().starts_with(&[vec![]])),
            }
            client.end_input().await;
            let said = client.finish().await;
            assert!(said.out == [b"begun", &text[..]].concat(), "{way:?}");
        });
    }
    clients.join_all().await;
    for end in fixture.ends(2).await {
        assert_eq!(end.outcome, SessionOutcome::Done, "{end:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slowly_read_client_is_not_pinged() {
    let fixture = Fixture::start().await;
    let mut clients = JoinSet::new();
    for way in [WAYS[3], WAYS[10]] {
        let url = fixture.exec(&["sip", "10"], "io");
        clients.spawn(async move {
            let mut client = Client::connect(&url, way, "io").await;
            let (since, mut sent) = (Instant::now(), 0);
            while since.elapsed() < 2 * A_WHILE || sent <= HELD_BACK {
                client.send(0, &[b'x'; 30_000]).await;
                sent += 30_000;
            }
            match &client.wire {
                Wire::Spdy(spdy, _) => assert!(spdy.pings().is_empty(), "{way:?}"),
                Wire::WebSocket(socket, _) => assert!(socket.pongs().is_empty(), "{way:?}"),
            }
            client.end_input().await;
            let said = client.finish().await;
            assert_eq!(said.out, sent.to_string().as_bytes());
        });
    }
    clients.join_all().await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_do_not_keep_an_idle_session_alive() {
    let mut settings = settings();
    settings.idle_timeout = A_WHILE;
    let fixture = Fixture::with(settings).await;
    let mut clients = JoinSet::new();
    for way in SOME {
        let url = fixture.exec(&["wait"], "io");
        clients.spawn(async move {
            let mut client = Client::connect(&url, way, "io").await;
            client.fill().await;
            client
        });
    }
    let clients = clients.join_all().await;
    for end in fixture.ends(SOME.len()).await {
        assert_eq!(end.outcome, SessionOutcome::Idle, "{end:?}");
    }
    drop(clients);
    fixture.stop().await;
}
