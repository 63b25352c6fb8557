//! Exec, attach and port-forward into real containers, by clients that are many, lazy, or gone: what they may cost, and that
//! nothing of them stays.

mod attach;
mod children;
mod forward;
mod gone;
mod lost;
mod many;
mod node;
mod slow;
mod terminal;

use criscope::cri::v1;

use self::node::Node;

/// The transports that clients use today.
const WAYS: [(&str, &str); 2] = [
    ("spdy", "v4.channel.k8s.io"),
    ("websocket", "v5.channel.k8s.io"),
];

/// Sends back what it gets, to as many as come.
const ECHO: &str = "nc -ll -p 8080 -e /bin/cat & trap 'exit 0' TERM; sleep 1000000 & wait";

/// Calls are answered, and commands run.
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
