//! Terminals, and their sizes.

use super::WAYS;
use super::node::Node;
use crate::prelude::*;
use crate::streaming::client::Client;

/// A script that prints the size of its terminal when it changes.
const SIZES: &str = "while now=$(/bin/busybox stty size); do \
    [ \"$now\" = \"$was\" ] || echo \"size $now\"; was=$now; sleep 0.1; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_the_size_of_its_clients_terminal() {
    let node = Node::with(idle("main")).await;
    for way in WAYS {
        let url = node.exec(SIZES, "iot").await;
        let mut client = Client::connect(&url, way, "iot").await;
        for (width, height) in [(101, 37), (90, 40)] {
            client.resize(width, height).await;
            client.shows(&format!("size {height} {width}\r\n")).await;
        }
        // Input is echoed, and Ctrl-C is a signal.
        client.send(0, b"typed").await;
        client.shows("typed").await;
        client.send(0, b"\x03").await;
        let said = client.finish().await;
        assert!(said.error.contains("\"130\""), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_the_size_of_the_last_resize() {
    let mut config = shell("main", SIZES);
    (config.stdin, config.tty) = (true, true);
    // Input of a terminal has no end, even with stdin_once.
    config.stdin_once = true;
    let node = Node::with(config).await;
    let mut clients = Vec::new();
    for (way, width) in WAYS.into_iter().zip([101, 90]) {
        let mut client = Client::connect(&node.attach("iot").await, way, "iot").await;
        client.resize(width, 37).await;
        clients.push(client);
        for client in &clients {
            client.shows(&format!("size 37 {width}\r\n")).await;
        }
    }
    let mut first = clients.remove(0);
    first.send(0, b"typed").await;
    clients[0].shows("typed").await;
    first.end_input().await;
    assert_eq!(first.finish().await.error, r#"{"status":"Success"}"#);
    until_true("one session to be left", async || node.open().await == 1.0).await;
    clients[0].resize(70, 30).await;
    clients[0].shows("size 30 70\r\n").await;
    drop(clients);
    node.is_quiet().await;
    node.end().await;
}
