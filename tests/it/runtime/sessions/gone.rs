//! Clients that vanish.

use nix::sys::signal;
use tokio::task::JoinSet;

use super::node::Node;
use super::{ECHO, WAYS, kubelet_says_hello};
use crate::prelude::*;
use crate::streaming::client::{Client, forwarding, lazy, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_nothing() {
    let node = Node::with(shell("main", ECHO)).await;
    for way in WAYS {
        // One that writes endlessly without a reader; one that waits for input; a terminal with a foreground process.
        let writes = lazy(&node.exec("/bin/busybox yes", "o").await, way).await;
        let reads = Client::connect(&node.exec("echo up; cat", "io").await, way, "io").await;
        let shows = node.exec("echo up; sleep 54321", "iot").await;
        let shows = Client::connect(&shows, way, "iot").await;
        for client in [&reads, &shows] {
            assert_eq!(&client.output(3).await[..2], b"up");
        }
        until_true("all to run", async || {
            let all = node.processes();
            let there = |name: &str| all.iter().any(|what| what.contains(name));
            there("yes") && there("54321")
        })
        .await;
        let mut forward = forwarding(&node.forward().await).await;
        let (_, data) = open(&mut forward, 0, 8080).await;
        forward.send(data, b"up", false).await;
        let came = |got: &crate::streaming::spdy::Got| (got.data == b"up").then_some(());
        forward.wait(data, came).await;
        let attached = Client::connect(&node.attach("oe").await, way, "oe").await;
        // A session is counted a moment after its client was accepted.
        node.are_open(5).await;
        drop((writes, reads, shows, forward, attached));
        node.is_quiet().await;
    }
    kubelet_says_hello(&node).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_with_unread_input_leaves_nothing() {
    // Neither the container nor the commands read their input.
    let mut config = idle("main");
    config.stdin = true;
    let node = Node::with(config).await;
    let mut clients = JoinSet::new();
    let mut count = 0;
    for way in WAYS {
        let sleeps = (node.exec("echo up; sleep 54321", "io").await, "io");
        let shows = (node.exec("echo up; sleep 54321", "iot").await, "iot");
        let attached = (node.attach("io").await, "io");
        for (url, streams) in [sleeps, shows, attached] {
            count += 1;
            clients.spawn(async move {
                let mut client = Client::connect(&url, way, streams).await;
                client.fill().await;
                client
            });
        }
    }
    let clients = clients.join_all().await;
    node.are_open(count).await;
    drop(clients);
    node.no_session_is_left().await;
    kubelet_says_hello(&node).await;
    // Commands with a terminal get SIGHUP; those without one keep running, and only see the end of their input.
    until_true("only those without a terminal to run", async || {
        let all = node.processes();
        let left = all.iter().filter(|what| what.ends_with("sleep 54321"));
        left.count() == WAYS.len()
    })
    .await;
    for (pid, what) in leaks::processes(node.daemon.name()) {
        if what.trim().ends_with("sleep 54321") {
            signal::kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
        }
    }
    node.is_quiet().await;
    node.end().await;
}
