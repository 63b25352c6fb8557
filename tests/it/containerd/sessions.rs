//! Exec, attach and port-forward sessions of a real containerd, proxied by criscope.

use super::Node;
use super::pod::{make, sandbox_config, unmake};
use crate::prelude::*;
use crate::streaming::client::{Client, forwarding, upgraded};
use crate::streaming::spdy::Spdy;
use crate::streaming::tls::{certificate, connect_with_tls};

/// The transports that this containerd supports.
const WAYS: [(&str, &str); 2] = [
    ("spdy", "v4.channel.k8s.io"),
    ("websocket", "v4.channel.k8s.io"),
];

/// The exec URL of a script with all streams.
async fn exec(kubelet: &Kubelet, container: &str, script: &str) -> String {
    let command = requests::shell_command(script);
    kubelet.exec_url(container, command, "ioe").await
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_containerd_are_seen() {
    let node = Node::new().await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let (pod, container) = make(kubelet, &sandbox_config(&node.containerd)).await;

    for way in WAYS {
        let url = exec(kubelet, &container, "read x; echo got $x; exit 7").await;
        let mut client = Client::connect(&url, way, "ioe").await;
        client.send(0, b"this\n").await;
        assert_eq!(client.output(9).await, b"got this\n", "{way:?}");
        let line = proxy
            .wait_line("the end of exec", |line| {
                line["event"] == "stream.session" && line["stream.transport"] == way.0
            })
            .await;
        assert_eq!(line["process.exit.code"], 7, "{line}");
        assert_eq!(
            (&line["stream.outcome"], &line["k8s.pod.name"]),
            (&"done".into(), &"web".into())
        );
    }

    let url = kubelet.attach_url(&container, "oe").await;
    drop(Client::connect(&url, WAYS[0], "oe").await);
    let line = proxy
        .wait_line("the end of attach", |line| line["stream.kind"] == "attach")
        .await;
    assert_eq!(line["stream.outcome"], "client_gone", "{line}");

    let url = kubelet.forward_url(&pod.id).await;
    refused(forwarding(&url).await).await;
    let line = proxy
        .wait_line("the end of port-forward", |line| {
            line["stream.kind"] == "portforward"
        })
        .await;
    assert_eq!(line["stream.outcome"], "done", "{line}");
    let story = proxy.json("/debug/pods/shop/web").await;
    let told = story["sessions"].as_array().map_or(0, Vec::len);
    assert!(told >= 3, "{story}");
    let urls = proxy.scrape().await;
    let led = urls
        .metric("criscope_stream_urls_total")
        .with("result", "proxied");
    assert_eq!(led.sum(), 4.0);

    unmake(kubelet, &pod, &container).await;
    assert!(kubelet.pods().await.is_empty());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_containerd_with_tls_are_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificate(dir.path());
    let node = Node::with(Containerd::with_tls(&files).await).await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let (pod, container) = make(kubelet, &sandbox_config(&node.containerd)).await;

    let url = exec(kubelet, &container, "read x; echo got $x; exit 7").await;
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let tls = connect_with_tls(&url, &files.cert).await;
    let mut spdy = upgraded(tls, &url, "v4.channel.k8s.io").await;
    let mut streams = Vec::new();
    for kind in ["error", "stdin", "stdout", "stderr"] {
        streams.push(spdy.open(&[("streamtype", kind)]).await);
    }
    spdy.send(streams[1], b"this\n", true).await;
    assert_eq!(spdy.end(streams[2]).await.data, b"got this\n");
    let result = spdy.end(streams[0]).await.data;
    let result = String::from_utf8(result).expect("text");
    assert!(result.contains("NonZeroExitCode"), "{result}");
    // The client stays connected until the end is logged, so the upstream closes first.
    let line = proxy.wait_event("stream.session").await;
    for (field, value) in [
        ("stream.transport", "tls"),
        ("stream.outcome", "done"),
        ("first_to_close", "upstream"),
        ("k8s.pod.name", "web"),
        ("process.executable.name", "sh"),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    drop(spdy);

    let url = kubelet.forward_url(&pod.id).await;
    let tls = connect_with_tls(&url, &files.cert).await;
    refused(upgraded(tls, &url, "portforward.k8s.io").await).await;
    let line = proxy
        .wait_line("the end of port-forward", |line| {
            line["stream.kind"] == "portforward"
        })
        .await;
    assert_eq!(line["stream.outcome"], "done", "{line}");

    unmake(kubelet, &pod, &container).await;
    node.end().await;
}

/// The pod itself refuses the connection, which shows that it was reached.
async fn refused<T>(mut spdy: Spdy<T>)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    let port = [("port", "9"), ("requestid", "0")];
    let headers = |kind| [("streamtype", kind), port[0], port[1]];
    let error = spdy.open(&headers("error")).await;
    let data = spdy.open(&headers("data")).await;
    let text = spdy
        .wait(error, |got| (got.data.len() > 20).then(|| got.data.clone()))
        .await;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("port 9"), "{text}");
    // Closing a socket with unread data would reset the connection.
    spdy.end(error).await;
    let _ = tokio::time::timeout(Duration::from_millis(500), spdy.end(data)).await;
}
