//! Who may send spans: what is forwarded has the credentials of the node.

use std::net::{SocketAddr, TcpStream};

use nix::unistd::{Uid, setfsuid};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;

use super::{EXPORT, Receiving, otlp, post, post_on, received, receiving, request, span, told};
use crate::prelude::*;

const NOBODY: u32 = 65534;
const PERMISSION_DENIED: i32 = 7;

/// A connection of a local user.
fn connect_as(address: SocketAddr, uid: u32) -> tokio::net::TcpStream {
    // For the sockets of this thread alone.
    let connecting = std::thread::spawn(move || {
        setfsuid(Uid::from_raw(uid));
        TcpStream::connect(address).expect("connected")
    });
    let socket = connecting.join().expect("a thread");
    socket.set_nonblocking(true).expect("non-blocking");
    tokio::net::TcpStream::from_std(socket).expect("registered")
}

fn refused(scrape: &Scrape) -> f64 {
    let all = scrape.metric("criscope_telemetry_dropped_total");
    all.with("signal", "passed_span")
        .with("reason", "not_allowed")
        .sum()
}

fn export() -> Bytes {
    message(&request(vec![span(&[9; 16], 8, &[], "gc")]).encode_to_vec())
}

async fn all_passed_on(all: &Receiving, count: f64) {
    all.proxy
        .wait_scrape("forwarded spans", |scrape| {
            scrape.metric("criscope_receiver_passed_on_total").sum() >= count
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_other_users_are_refused_and_not_forwarded() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let all = receiving(&fake, &otlp(&collector)).await;
    // As part of a call they would be in the story of a pod.
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let forged = message(&request(vec![span(&trace, 1, &client_span, "x")]).encode_to_vec());
    for uid in [NOBODY, 1000] {
        let socket = connect_as(all.address, uid);
        let status = post_on(socket, EXPORT, None, forged.clone()).await;
        assert_eq!(status, PERMISSION_DENIED, "user {uid}");
    }
    assert_eq!(post(all.address, EXPORT, None, export()).await, 0, "root");
    all_passed_on(&all, 1.0).await;
    let scrape = all.proxy.scrape().await;
    assert_eq!(refused(&scrape), 2.0);
    assert_eq!(received(&scrape, "dropped"), 2.0);
    assert_eq!(received(&scrape, "attributed"), 0.0);
    let passed_on = "criscope_receiver_passed_on_total";
    assert_eq!(scrape.metric(passed_on).sum(), 1.0);
    let log = all.proxy.stop().await.join("\n");
    assert_eq!(log.matches("receiver.refused").count(), 1, "{log}");
}

/// The kernel gives a socket that its process has closed to root.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_gone_is_not_taken_for_root() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    // HTTP/2: the preface, empty settings, a request in literals, and its message.
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", EXPORT),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        head.extend([0, name.len() as u8]);
        head.extend(name.bytes());
        head.push(value.len() as u8);
        head.extend(value.bytes());
    }
    let body = export();
    for (kind, flags, payload) in [(1, 4, &head[..]), (0, 1, &body[..])] {
        bytes.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(payload);
    }
    // These bytes are a request: root's is taken.
    let mut socket = connect_as(all.address, 0);
    socket.write_all(&bytes).await.expect("sent");
    all.proxy
        .wait_scrape("the span of root", |s| received(s, "unknown") == 1.0)
        .await;
    for _ in 0..50 {
        let mut socket = connect_as(all.address, NOBODY);
        socket.write_all(&bytes).await.expect("sent");
    }
    // Connections are accepted in order: after this one the others have been judged.
    let mut socket = connect_as(all.address, 0);
    socket.write_all(&bytes).await.expect("sent");
    all.proxy
        .wait_scrape("the second span of root", |s| received(s, "unknown") >= 2.0)
        .await;
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "unknown"), 2.0, "none of nobody's");
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_can_be_allowed() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "{}[receiver]\nlisten = \"{address}\"\nallowed_uids = [{NOBODY}]\n",
        otlp(&collector)
    );
    let proxy = configured(&fake, &config).await;
    let all = Receiving { proxy, address };
    for (uid, want) in [(NOBODY, 0), (0, 0), (1000, PERMISSION_DENIED)] {
        let status = post_on(connect_as(address, uid), EXPORT, None, export()).await;
        assert_eq!(status, want, "user {uid}");
    }
    all_passed_on(&all, 2.0).await;
    all.proxy.stop().await;
}

/// Connections of other users take no place of the runtime.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_other_users_do_not_close_those_of_the_runtime() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let runtime = connect_as(all.address, 0);
    let others: Vec<_> = (0..100).map(|_| connect_as(all.address, NOBODY)).collect();
    let status = post_on(connect_as(all.address, NOBODY), EXPORT, None, export()).await;
    assert_eq!(status, PERMISSION_DENIED);
    assert_eq!(post_on(runtime, EXPORT, None, export()).await, 0);
    drop(others);
    all.proxy.stop().await;
}
