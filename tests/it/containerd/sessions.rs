//! Exec, attach and port-forward of a real containerd, led through criscope.

use criscope::cri::v1;
use criscope::cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};

use super::daemon::Containerd;
use super::pod::{Clients, make, sandbox_config, unmake};
use super::{before, end};
use crate::streaming::client::Client;

/// The ways that this containerd serves.
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
                line["event"] == "stream.session" && line["transport"] == way.0
            })
            .await;
        assert_eq!(line["exit_code"], 7, "{line}");
        assert_eq!(
            (&line["outcome"], &line["pod"]),
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
        .wait_line("the end of attach", |line| line["kind"] == "attach")
        .await;
    assert_eq!(line["outcome"], "client_gone", "{line}");

    let request = PortForwardRequest {
        pod_sandbox_id: sandbox.clone(),
        port: vec![],
    };
    let answer = clients.runtime.port_forward(request).await;
    forward(&answer.expect("port-forward").into_inner().url).await;
    let line = proxy
        .wait_line("the end of port-forward", |line| {
            line["kind"] == "portforward"
        })
        .await;
    assert_eq!(line["outcome"], "done", "{line}");
    let story = proxy.get("/debug/pods/shop/web?format=json").await.1;
    let story: serde_json::Value = serde_json::from_str(&story).expect("json");
    let told = story["sessions"].as_array().map_or(0, Vec::len);
    assert!(told >= 3, "{story}");
    let urls = proxy.scrape().await;
    let led = urls
        .metric("criscope_stream_urls_total")
        .with("result", "led");
    assert_eq!(led.sum(), 4.0);

    unmake(&mut clients, &sandbox, &container).await;
    let list = v1::ListPodSandboxRequest::default();
    let left = clients.runtime.list_pod_sandbox(list).await.expect("list");
    assert!(left.into_inner().items.is_empty());
    proxy.stop().await;
    end(containerd);
}

/// Nothing listens on the port, which the pod itself says: it was reached.
async fn forward(url: &str) {
    let mut spdy = crate::streaming::client::forwarding(url).await;
    let port = [("port", "9"), ("requestid", "0")];
    let headers = |kind| [("streamtype", kind), port[0], port[1]];
    let error = spdy.open(&headers("error")).await;
    let _data = spdy.open(&headers("data")).await;
    let text = spdy
        .wait(error, |got| (got.data.len() > 20).then(|| got.data.clone()))
        .await;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("port 9"), "{text}");
}
