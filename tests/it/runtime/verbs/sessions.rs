//! Exec through the streaming server.

use crate::harness::collector::attribute;
use crate::prelude::*;
use crate::streaming::client::Client;

const WAY: (&str, &str) = ("spdy", "v4.channel.k8s.io");

/// The exec URL for a script, with streams as in [`requests::exec`].
async fn url(kubelet: &Kubelet, container: &str, script: &str, streams: &str) -> String {
    let command = requests::shell_command(script);
    kubelet.exec_url(container, command, streams).await
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_delivered_as_long_as_the_command_runs() {
    let (daemon, kubelet, pod) = node_with_pod("sessions").await;
    let container = kubelet.launch(&pod, idle("main")).await;

    // Input for a command that has closed its outputs.
    let script = "exec >/dev/null 2>&1; touch /closed; cat > /first; exit 3";
    let at = url(&kubelet, &container, script, "ioe").await;
    let mut client = Client::connect(&at, WAY, "ioe").await;
    until_true("the end of the outputs", async || {
        let closed = kubelet.exec(&container, "test -e /closed").await;
        closed.code == 0
    })
    .await;
    client.send(0, b"hello").await;
    client.end_input().await;
    let said = client.finish().await;
    assert!(said.error.contains("exit code 3"), "{}", said.error);
    assert_eq!(kubelet.says(&container, "cat /first").await, "hello");

    // Input from a client that requested no output.
    let script = "cat > /second; echo unseen; exit 4";
    let at = url(&kubelet, &container, script, "i").await;
    let mut client = Client::connect(&at, WAY, "i").await;
    client.send(0, b"hello").await;
    client.end_input().await;
    let said = client.finish().await;
    assert!(said.error.contains("exit code 4"), "{}", said.error);
    assert_eq!(kubelet.says(&container, "cat /second").await, "hello");

    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_daemon_is_reported_to_clients_and_logged() {
    let collector = Collector::new(Manner::Takes).await;
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let endpoint = collector.endpoint();
    daemon.configure(&format!("[telemetry.otlp]\nendpoint = {endpoint:?}\n"));
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("stopped").await;
    let container = kubelet.launch(&pod, idle("main")).await;
    let mut clients = Vec::new();
    for way in [WAY, ("websocket", "v5.channel.k8s.io"), WAY] {
        let at = url(&kubelet, &container, "echo begun; exec sleep 1000", "ioe").await;
        let client = Client::connect(&at, way, "ioe").await;
        assert_eq!(client.output(6).await, b"begun\n");
        clients.push(client);
    }
    // One client does not disconnect.
    let deaf = clients.pop();
    daemon.program().signal(Signal::SIGTERM);
    for client in clients {
        let said = client.cut().await;
        assert!(said.contains("criscope is being stopped"), "{said}");
    }
    daemon.program().wait_event("stopped").await;
    let log = daemon.program().events();
    let ends = log.iter().filter(|line| line["event"] == "stream.session");
    let ends: Vec<_> = ends.map(|line| &line["stream.outcome"]).collect();
    assert_eq!(ends, ["shutdown"; 3], "{log:?}");
    let spans = collector.spans();
    let ends = spans.iter().filter(|span| span.name == "cri.stream.exec");
    let ends: Vec<_> = ends
        .map(|span| attribute(&span.attributes, "stream.outcome"))
        .collect();
    let told = Some("shutdown".to_owned());
    assert_eq!(ends, vec![told; 3]);
    drop(deaf);

    let kubelet = daemon.restart().await;
    daemon.end(&kubelet, [&pod]).await;
}
