//! Exec, attach and port-forward sessions of a real containerd, proxied by criscope.

use std::time::Duration;

use criscope::cri::v1;
use criscope::cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};

use super::pod::{Clients, make, sandbox_config, unmake};
use super::{before, end};
use crate::harness::containerd::Containerd;
use crate::streaming::client::{Client, forwarding, upgraded};
use crate::streaming::spdy::Spdy;
use crate::streaming::tls::{certificate, connect_with_tls};

/// The transports that this containerd supports.
const WAYS: [(&str, &str); 2] = [
    ("spdy", "v4.channel.k8s.io"),
    ("websocket", "v4.channel.k8s.io"),
];

async fn exec(clients: &mut Clients, container: &str, script: &str) -> String {
    let request = ExecRequest {
        container_id: container.into(),
        cmd: ["/bin/sh", "-c", script].map(Into::into).into(),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let answer = clients.runtime.exec(request).await.expect("exec");
    answer.into_inner().url
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_containerd_are_seen() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let config = sandbox_config(&containerd);
    let (sandbox, container) = make(&mut clients, &config).await;

    for way in WAYS {
        let url = exec(&mut clients, &container, "read x; echo got $x; exit 7").await;
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

    let request = AttachRequest {
        container_id: container.clone(),
        stdout: true,
        stderr: true,
        ..Default::default()
    };
    let answer = clients.runtime.attach(request).await.expect("attach");
    let client = Client::connect(&answer.into_inner().url, WAYS[0], "oe").await;
    drop(client);
    let line = proxy
        .wait_line("the end of attach", |line| line["stream.kind"] == "attach")
        .await;
    assert_eq!(line["stream.outcome"], "client_gone", "{line}");

    let request = PortForwardRequest {
        pod_sandbox_id: sandbox.clone(),
        port: vec![],
    };
    let answer = clients.runtime.port_forward(request).await;
    let url = answer.expect("port-forward").into_inner().url;
    refused(forwarding(&url).await).await;
    let line = proxy
        .wait_line("the end of port-forward", |line| {
            line["stream.kind"] == "portforward"
        })
        .await;
    assert_eq!(line["stream.outcome"], "done", "{line}");
    let story = proxy.get("/debug/pods/shop/web?format=json").await.1;
    let story: serde_json::Value = serde_json::from_str(&story).expect("json");
    let told = story["sessions"].as_array().map_or(0, Vec::len);
    assert!(told >= 3, "{story}");
    let urls = proxy.scrape().await;
    let led = urls
        .metric("criscope_stream_urls_total")
        .with("result", "proxied");
    assert_eq!(led.sum(), 4.0);

    unmake(&mut clients, &sandbox, &container).await;
    let list = v1::ListPodSandboxRequest::default();
    let left = clients.runtime.list_pod_sandbox(list).await.expect("list");
    assert!(left.into_inner().items.is_empty());
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_containerd_with_tls_are_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificate(dir.path());
    let containerd = Containerd::with_tls(&files).await;
    let proxy = before(&containerd).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let config = sandbox_config(&containerd);
    let (sandbox, container) = make(&mut clients, &config).await;

    let url = exec(&mut clients, &container, "read x; echo got $x; exit 7").await;
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

    let request = PortForwardRequest {
        pod_sandbox_id: sandbox.clone(),
        port: vec![],
    };
    let answer = clients.runtime.port_forward(request).await;
    let url = answer.expect("port-forward").into_inner().url;
    let tls = connect_with_tls(&url, &files.cert).await;
    refused(upgraded(tls, &url, "portforward.k8s.io").await).await;
    let line = proxy
        .wait_line("the end of port-forward", |line| {
            line["stream.kind"] == "portforward"
        })
        .await;
    assert_eq!(line["stream.outcome"], "done", "{line}");

    unmake(&mut clients, &sandbox, &container).await;
    proxy.stop().await;
    end(containerd);
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
