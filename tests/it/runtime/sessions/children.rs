//! Commands that leave behind children that hold their output open.

use nix::sys::signal;

use super::WAYS;
use super::node::Node;
use crate::prelude::*;
use crate::streaming::client::Client;

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_child_after_its_command_has_exited_is_delivered() {
    let node = Node::with(idle("main")).await;
    for way in WAYS {
        let url = node
            .exec("(sleep 1; echo late) & echo x; exit 3", "o")
            .await;
        let said = Client::connect(&url, way, "o").await.finish().await;
        assert_eq!(String::from_utf8_lossy(&said.out), "x\nlate\n");
        assert!(said.error.contains("\"3\""), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_child_holds_its_session_only_briefly() {
    let node = Node::with(idle("main")).await;
    for way in WAYS {
        let url = node.exec("sleep 54321 & echo x; exit 3", "o").await;
        let said = Client::connect(&url, way, "o").await.finish().await;
        assert_eq!(String::from_utf8_lossy(&said.out), "x\n");
        assert!(said.error.contains("\"3\""), "{}", said.error);
    }
    node.no_session_is_left().await;
    // The child belongs to the container now.
    let mut left = 0;
    for (pid, what) in leaks::processes(node.daemon.name()) {
        if what.trim() == "sleep 54321" {
            signal::kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
            left += 1;
        }
    }
    assert_eq!(left, WAYS.len());
    node.is_quiet().await;
    node.end().await;
}
