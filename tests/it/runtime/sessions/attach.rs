//! Clients that attach to a container and talk to it.

use criscope::cri::v1;
use tokio::task::JoinSet;

use super::WAYS;
use super::node::Node;
use crate::harness::kubelet::shell;
use crate::harness::until;
use crate::streaming::client::Client;

const SUCCESS: &str = r#"{"status":"Success"}"#;

/// A container that takes input, of any number of clients.
fn reading(script: &str) -> v1::ContainerConfig {
    let mut config = shell("main", script);
    config.stdin = true;
    config
}

/// One that answers each line.
fn answering() -> v1::ContainerConfig {
    reading("while read x; do echo got $x; done")
}

/// Waits until a script in the container ends well.
async fn until_there(node: &Node, script: &str) {
    until(script, || async {
        let said = node.kubelet.exec(&node.container, script).await;
        (said.code == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_ends_with_its_input_and_the_container_goes_on() {
    let node = Node::with(answering()).await;
    for way in WAYS {
        let mut client = Client::connect(&node.attach("ioe").await, way, "ioe").await;
        client.send(0, b"this\n").await;
        client.end_input().await;
        let said = client.finish().await;
        let out = String::from_utf8_lossy(&said.out);
        assert_eq!((&*out, &*said.error), ("got this\n", SUCCESS), "{way:?}");
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
    node.nobody_is_left().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_does_not_end_before_its_input_is_taken() {
    // More than pipe, shim and socket hold.
    const LENGTH: usize = 1 << 20;
    let script = "until [ -e /go ]; do sleep 0.1; done; /bin/busybox yes & cat > /all";
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
    until("both to be attached", || async {
        (node.open().await == clients.len() as f64).then_some(())
    })
    .await;
    node.kubelet.says(&node.container, "touch /go").await;
    for error in clients.join_all().await {
        assert_eq!(error, SUCCESS);
    }
    let all = format!("[ $(/bin/busybox wc -c < /all) = {} ]", 2 * LENGTH);
    until_there(&node, &all).await;
    node.nobody_is_left().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_that_ends_the_input_of_its_container_sees_the_rest() {
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
