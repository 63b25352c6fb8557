//! Clients that attach to a container and send input.

use tokio::task::JoinSet;

use super::WAYS;
use super::node::Node;
use crate::prelude::*;
use crate::streaming::client::Client;

const SUCCESS: &str = r#"{"status":"Success"}"#;

/// How often a response that must be in time may be late.
const TRIES: usize = 5;

/// A container that takes input from any number of clients.
fn reading(script: &str) -> v1::ContainerConfig {
    let mut config = shell("main", script);
    config.stdin = true;
    config
}

/// A container that answers each line.
fn answering() -> v1::ContainerConfig {
    reading("while read x; do echo got $x; done")
}

/// Waits until a script in the container succeeds.
async fn until_there(node: &Node, script: &str) {
    until_true(script, async || {
        let said = node.kubelet.exec(&node.container, script).await;
        said.code == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_ends_with_its_input_and_the_container_goes_on() {
    // Slow enough that its answer must be waited for.
    let answering = reading("while read x; do sleep 0.2; echo got $x; done");
    let node = Node::with(answering).await;
    for way in WAYS {
        // Attach waits briefly for an answer. A late one is seen by the next client.
        let mut tries = 1..=TRIES;
        let answered = loop {
            let Some(number) = tries.next() else {
                break false;
            };
            let mut client = Client::connect(&node.attach("ioe").await, way, "ioe").await;
            client.send(0, format!("{number}\n").as_bytes()).await;
            client.end_input().await;
            let said = client.finish().await;
            let out = String::from_utf8_lossy(&said.out);
            assert_eq!(said.error, SUCCESS, "{way:?}");
            assert!(out.lines().all(|line| line.starts_with("got ")), "{out:?}");
            if out.ends_with(&format!("got {number}\n")) {
                break true;
            }
        };
        assert!(answered, "{way:?}: no answer was waited for");
    }
    node.logged("attach", "done").await;
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_ends_with_its_input_though_the_container_goes_on_writing() {
    let node = Node::with(reading("while echo line; do sleep 0.01; done")).await;
    for way in WAYS {
        let mut client = Client::connect(&node.attach("io").await, way, "io").await;
        client.shows("line").await;
        client.end_input().await;
        assert_eq!(client.finish().await.error, SUCCESS, "{way:?}");
    }
    node.no_session_is_left().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_does_not_end_before_its_input_is_consumed() {
    // The input of both exceeds the buffers of pipe and shim, but fits with those between shim and daemon.
    const LENGTH: usize = 120 << 10;
    let script = "while echo line; do sleep 0.01; done & \
                  until [ -e /go ]; do sleep 0.1; done; cat > /all";
    let node = Node::with(reading(script)).await;
    let mut clients = JoinSet::new();
    for (way, streams) in WAYS.into_iter().zip(["i", "io"]) {
        let url = node.attach(streams).await;
        clients.spawn(async move {
            let mut client = Client::connect(&url, way, streams).await;
            for _ in 0..LENGTH / 4096 {
                client.send(0, &[b'x'; 4096]).await;
            }
            client.end_input().await;
            client.finish().await.error
        });
    }
    // Much longer than the wait for an answer. The input of one client may be consumed by now, not that of both.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(node.open().await >= 1.0);
    node.kubelet.says(&node.container, "touch /go").await;
    for error in clients.join_all().await {
        assert_eq!(error, SUCCESS);
    }
    let all = format!("[ $(/bin/busybox wc -c < /all) = {} ]", 2 * LENGTH);
    until_there(&node, &all).await;
    node.no_session_is_left().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_that_closes_stdin_sees_the_remaining_output() {
    let mut config =
        reading("cat > /all; touch /ended; until [ -e /go ]; do sleep 0.1; done; echo over");
    config.stdin_once = true;
    let node = Node::with(config).await;
    let mut client = Client::connect(&node.attach("io").await, WAYS[1], "io").await;
    client.send(0, b"all of it").await;
    client.end_input().await;
    until_there(&node, "[ -e /ended ]").await;
    assert_eq!(
        node.kubelet.says(&node.container, "cat /all").await,
        "all of it"
    );
    assert_eq!(node.open().await, 1.0);
    node.kubelet.says(&node.container, "touch /go").await;
    let said = client.finish().await;
    assert_eq!((&said.out[..], &*said.error), (&b"over\n"[..], SUCCESS));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_clients_are_attached_at_once() {
    const EACH: usize = 5;
    const ALL: usize = 6;
    let node = Node::with(answering()).await;
    let mut clients = Vec::new();
    for (number, way) in WAYS.into_iter().cycle().take(ALL).enumerate() {
        let mut client = Client::connect(&node.attach("io").await, way, "io").await;
        // A session is open a moment before it is attached: only an answer to its own input shows that it is.
        client.send(0, format!("in {number}\n").as_bytes()).await;
        client.shows(&format!("got in {number}\n")).await;
        clients.push(client);
    }
    assert_eq!(node.open().await, ALL as f64);
    for round in 0..EACH {
        for (number, client) in clients.iter_mut().enumerate() {
            client
                .send(0, format!("{number}.{round}\n").as_bytes())
                .await;
        }
    }
    // All clients see every answer, in the same order. Before that each has seen who came after it.
    let length = ALL * EACH * "got 0.0\n".len();
    let mut seen = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let before = (ALL - number) * "got in 0\n".len();
        let said = String::from_utf8(client.output(before + length).await).expect("text");
        seen.push(said[before..].to_owned());
    }
    for (number, all) in seen.iter().enumerate() {
        assert_eq!(*all, seen[0]);
        let prefix = format!("got {number}.");
        let of_one = all.lines().filter(|line| line.starts_with(&prefix));
        let wanted: Vec<_> = (0..EACH).map(|round| format!("{prefix}{round}")).collect();
        assert_eq!(of_one.collect::<Vec<_>>(), wanted);
    }
    // A client that detaches does not affect the others.
    let mut first = clients.remove(0);
    first.end_input().await;
    assert_eq!(first.finish().await.error, SUCCESS);
    clients[0].send(0, b"more\n").await;
    for client in &clients {
        client.shows("got more\n").await;
    }
    drop(clients);
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_can_be_attached_to_after_a_restart() {
    let mut node = Node::with(answering()).await;
    let mut before = Client::connect(&node.attach("io").await, WAYS[0], "io").await;
    before.send(0, b"before\n").await;
    before.shows("got before\n").await;
    node.daemon.kill();
    drop(before);
    node.daemon.start().await;
    for way in WAYS {
        let mut after = Client::connect(&node.attach("io").await, way, "io").await;
        after.send(0, b"after\n").await;
        after.shows("got after\n").await;
        after.end_input().await;
        let said = after.finish().await;
        assert_eq!(
            (&said.out[..], &*said.error),
            (&b"got after\n"[..], SUCCESS)
        );
    }
    node.no_session_is_left().await;
    node.end().await;
}
