//! Exec, attach and port-forward into real containers, by many, slow or vanished clients: bounded cost, and nothing left
//! behind.

mod attach;
mod children;
mod forward;
mod gone;
mod lost;
mod many;
mod node;
mod slow;
mod terminal;

use self::node::Node;
use crate::prelude::*;

/// Transports that current clients use.
const WAYS: [(&str, &str); 2] = [
    ("spdy", "v4.channel.k8s.io"),
    ("websocket", "v5.channel.k8s.io"),
];

/// A script that echoes every connection.
const ECHO: &str = "nc -ll -p 8080 -e /bin/cat & trap 'exit 0' TERM; sleep 1000000 & wait";

/// Asserts that calls succeed, and commands run.
async fn kubelet_says_hello(node: &Node) {
    let list = v1::ListContainersRequest::default();
    let list = node.kubelet.runtime.clone().list_containers(list).await;
    assert_eq!(
        list.expect("ListContainers").into_inner().containers.len(),
        1
    );
    assert_eq!(
        node.kubelet.says(&node.container, "echo hello").await,
        "hello"
    );
}
