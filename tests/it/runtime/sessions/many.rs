//! Many sessions at once.

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::node::Node;
use super::{ECHO, WAYS, kubelet_says_hello};
use crate::prelude::*;
use crate::streaming::client::{Client, forwarding, open};

/// Sessions that are started concurrently: each runs runc.
const AT_ONCE: usize = 8;

/// A unique text, longer than the buffers of pipes and sockets.
fn text(number: usize) -> Vec<u8> {
    format!("session {number};").into_bytes().repeat(20_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_sessions_at_once_do_not_mix() {
    const EXECS: usize = 180;
    const FORWARDS: usize = 20;
    let node = Arc::new(Node::with(shell("main", ECHO)).await);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut begun = JoinSet::new();
    for number in 0..EXECS {
        let (node, turns) = (Arc::clone(&node), Arc::clone(&turns));
        begun.spawn(async move {
            let _turn = turns.acquire().await;
            let script = format!("echo up; cat; exit {}", number % 100);
            let url = node.exec(&script, "io").await;
            let client = Client::connect(&url, WAYS[number % 2], "io").await;
            assert_eq!(client.output(3).await, b"up\n");
            (number, client)
        });
    }
    let execs = begun.join_all().await;
    let mut forwards = Vec::new();
    for number in 0..FORWARDS {
        let mut spdy = forwarding(&node.forward().await).await;
        let (_, data) = open(&mut spdy, 0, 8080).await;
        spdy.send(data, b"up", false).await;
        let came = |got: &crate::streaming::spdy::Got| (got.data == b"up").then_some(());
        spdy.wait(data, came).await;
        forwards.push((number, spdy, data));
    }
    node.are_open(EXECS + FORWARDS).await;
    until_true("all sessions to be listed", async || {
        node.told().await == EXECS + FORWARDS
    })
    .await;
    kubelet_says_hello(&node).await;

    // All transfer data, and end, at the same time.
    let mut ends = JoinSet::new();
    for (number, mut client) in execs {
        ends.spawn(async move {
            for piece in text(number).chunks(30_000) {
                client.send(0, piece).await;
            }
            client.end_input().await;
            let said = client.finish().await;
            let whole = [&b"up\n"[..], &text(number)].concat();
            assert!(
                said.out == whole,
                "session {number}: {} bytes",
                said.out.len()
            );
            let (status, code) = (said.error, format!("\"{}\"", number % 100));
            match number % 100 {
                0 => assert_eq!(status, r#"{"status":"Success"}"#),
                _ => assert!(status.contains(&code), "session {number}: {status}"),
            }
        });
    }
    for (number, mut spdy, data) in forwards {
        ends.spawn(async move {
            for piece in text(number).chunks(30_000) {
                spdy.send(data, piece, false).await;
            }
            spdy.send(data, b"", true).await;
            let got = spdy.end(data).await;
            let whole = [&b"up"[..], &text(number)].concat();
            assert!(
                got.data == whole,
                "forward {number}: {} bytes",
                got.data.len()
            );
        });
    }
    while let Some(ended) = ends.join_next().await {
        ended.expect("a session that ends normally");
    }
    node.is_quiet().await;
    kubelet_says_hello(&node).await;
    Arc::into_inner(node).expect("all have ended").end().await;
}
