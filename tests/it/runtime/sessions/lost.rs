//! Shims that die or are unreachable.

use std::fs;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::WAYS;
use super::node::Node;
use crate::harness::kubelet::idle;
use crate::harness::until;
use crate::streaming::client::Client;

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_shim_is_reported_to_clients() {
    let node = Node::with(idle("main")).await;
    let mut clients = Vec::new();
    for way in WAYS {
        let url = node.exec("echo up; sleep 54321", "o").await;
        let command = Client::connect(&url, way, "o").await;
        command.output(3).await;
        clients.push(command);
        clients.push(Client::connect(&node.attach("o").await, way, "o").await);
    }
    until("all sessions to be open", || async {
        (node.open().await == clients.len() as f64).then_some(())
    })
    .await;
    signal::kill(Pid::from_raw(node.shim()), Signal::SIGKILL).expect("killed");
    for client in clients {
        let said = client.finish().await;
        assert!(said.error.contains("Failure"), "{}", said.error);
        assert!(said.error.contains("shim"), "{}", said.error);
    }
    for kind in ["exec", "attach"] {
        node.logged(kind, "failed").await;
    }
    node.nobody_is_left().await;
    node.kubelet.ended(&node.container).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_unreachable_streams_leaves_nothing() {
    let node = Node::with(idle("main")).await;
    let socket = node.pod_dir().join("shim.sock");
    let aside = node.pod_dir().join("aside");
    for way in WAYS {
        // The daemon is already connected.
        fs::rename(&socket, &aside).expect("away");
        let url = node.exec("sleep 54321", "io").await;
        let said = Client::connect(&url, way, "io").await.finish().await;
        fs::rename(&aside, &socket).expect("back");
        assert!(said.error.contains("no connection"), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}
