//! A pod that is restored from a checkpoint has a story, and its containers are known by the ids in the answer.

use super::*;

fn restore(name: &str, containers: &[(&str, u32)]) -> v1::RestorePodRequest {
    let configs = containers
        .iter()
        .map(|(name, attempt)| v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: (*name).to_owned(),
                attempt: *attempt,
            }),
            ..Default::default()
        });
    v1::RestorePodRequest {
        checkpoint_path: "/var/lib/kubelet/pod-checkpoints/1".to_owned(),
        config: Some(pods::config(name)),
        container_configs: configs.collect(),
        ..Default::default()
    }
}

fn restored() -> v1::RestorePodResponse {
    let container = |name: &str, id: &str| v1::RestoredContainer {
        name: name.to_owned(),
        container_id: id.to_owned(),
    };
    v1::RestorePodResponse {
        pod_sandbox_id: "sandbox-r".to_owned(),
        restored_containers: vec![
            container("app", "container-a"),
            container("side", "container-b"),
        ],
    }
}

async fn call(client: &Client, method: &str, request: &impl prost::Message) {
    let got = client.call(Call::runtime(method, encode(request))).await;
    assert_eq!(got.code(), 0, "{method}");
}

/// The line of a call of this method.
async fn line_of(proxy: &Proxy, method: &str) -> Value {
    let full = format!("runtime.v1.RuntimeService/{method}");
    proxy
        .wait_line(method, |line| line["rpc.method"] == full)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_restored_and_checkpointed() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    let answer = pod::answers();
    fake.on(move |head| match head.uri.path().rsplit('/').next() {
        Some("RestorePod") => script::ok(&[encode(&restored())]),
        _ => answer(head),
    });
    let proxy = proxy(&fake, &state).await;
    let client = proxy.client().await;
    let request = restore("warm", &[("app", 0), ("side", 2)]);
    call(&client, "RestorePod", &request).await;
    for id in ["container-a", "container-b"] {
        call(&client, "StartContainer", &requests::start(id)).await;
    }
    let line = summary(&proxy, "pod.start.summary", "warm").await;
    assert_eq!(line["criscope.outcome"], "ok", "{line}");
    assert_eq!(line["calls"], 3);
    assert!(number(&line, "restore_ms") > 0.0, "{line}");
    assert_adds_up(&line);
    assert_eq!(
        line["trace_id"],
        Ids::start("uid-warm", 0).trace_id.to_string()
    );

    // The answer names the containers, and the request has their restart counts.
    let stop = requests::stop("container-b", 1);
    call(&client, "StopContainer", &stop).await;
    let line = line_of(&proxy, "StopContainer").await;
    assert_eq!(line["k8s.pod.name"], "warm", "{line}");
    assert_eq!(line["k8s.container.name"], "side");
    assert_eq!(line["k8s.container.restart_count"], 2);

    let request = v1::CheckpointPodRequest {
        pod_sandbox_id: "sandbox-r".to_owned(),
        output_path: "/var/lib/kubelet/pod-checkpoints/2".to_owned(),
        container_ids: vec!["container-a".to_owned()],
        ..Default::default()
    };
    call(&client, "CheckpointPod", &request).await;
    let line = line_of(&proxy, "CheckpointPod").await;
    assert_eq!(line["k8s.pod.name"], "warm", "{line}");
    proxy.stop().await;
}
