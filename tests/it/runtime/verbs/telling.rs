//! Lists, events and statistics.

use tonic::Streaming;

use crate::prelude::*;

async fn containers(kubelet: &Kubelet, filter: v1::ContainerFilter) -> Vec<String> {
    let request = v1::ListContainersRequest {
        filter: Some(filter),
    };
    let list = kubelet.runtime.clone().list_containers(request).await;
    let list = list.expect("ListContainers").into_inner().containers;
    list.into_iter().map(|container| container.id).collect()
}

async fn pods(kubelet: &Kubelet, filter: v1::PodSandboxFilter) -> Vec<String> {
    let request = v1::ListPodSandboxRequest {
        filter: Some(filter),
    };
    let list = kubelet.runtime.clone().list_pod_sandbox(request).await;
    let list = list.expect("ListPodSandbox").into_inner().items;
    list.into_iter().map(|pod| pod.id).collect()
}

const EXITED: v1::ContainerState = v1::ContainerState::ContainerExited;
const RUNNING: v1::ContainerState = v1::ContainerState::ContainerRunning;

fn app(value: &str) -> HashMap<String, String> {
    HashMap::from([("app".to_owned(), value.to_owned())])
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_their_filters() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("a");
    config.labels = app("a");
    let a = kubelet.run(config).await;
    let b = kubelet.plain_pod("b").await;
    let mut config = idle("runs");
    config.labels = app("runs");
    let runs = kubelet.launch(&a, config).await;
    let ended = kubelet.launch(&b, shell("ended", "exit 0")).await;
    kubelet.ended(&ended).await;

    let mut all = containers(&kubelet, v1::ContainerFilter::default()).await;
    all.sort();
    let mut both = vec![runs.clone(), ended.clone()];
    both.sort();
    assert_eq!(all, both);
    let (pod, labels) = (b.id.clone(), app("runs"));
    for (what, id, pod_sandbox_id, state, label_selector, expected) in [
        ("id", &runs[..], "", None, None, &runs),
        ("id prefix", &runs[..12], "", None, None, &runs),
        ("pod", "", &pod, None, None, &ended),
        ("label", "", "", None, Some(labels), &runs),
        ("exited", "", "", Some(EXITED), None, &ended),
        ("running", "", "", Some(RUNNING), None, &runs),
    ] {
        let filter = v1::ContainerFilter {
            id: id.to_owned(),
            pod_sandbox_id: pod_sandbox_id.to_owned(),
            state: state.map(|state| v1::ContainerStateValue {
                state: state.into(),
            }),
            label_selector: label_selector.unwrap_or_default(),
        };
        let found = containers(&kubelet, filter).await;
        assert_eq!(found, std::slice::from_ref(expected), "{what}");
    }
    let labelled = v1::PodSandboxFilter {
        label_selector: app("a"),
        ..Default::default()
    };
    assert_eq!(pods(&kubelet, labelled).await, std::slice::from_ref(&a.id));
    let ready = v1::PodSandboxStateValue {
        state: v1::PodSandboxState::SandboxNotready.into(),
    };
    let stopped = v1::PodSandboxFilter {
        state: Some(ready),
        ..Default::default()
    };
    assert_eq!(pods(&kubelet, stopped).await, [""; 0]);

    let images = kubelet.list_images().await;
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].repo_tags, [IMAGE]);
    daemon.end(&kubelet, [&a, &b]).await;
}

async fn next(events: &mut Streaming<v1::ContainerEventResponse>) -> v1::ContainerEventResponse {
    let event = soon("an event", events.message()).await;
    event.expect("a stream").expect("an event")
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_pods_life() {
    let (daemon, kubelet) = node().await;
    let mut events = kubelet.events().await;
    let pod = kubelet.plain_pod("events").await;
    let id = kubelet.launch(&pod, shell("main", "exit 5")).await;
    kubelet.ended(&id).await;
    kubelet.remove(&id).await;
    kubelet.end(&pod).await;
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let event = next(&mut events).await;
        let status = event.pod_sandbox_status.as_ref();
        if event.container_event_type() != v1::ContainerEventType::ContainerDeletedEvent {
            assert_eq!(status.map(|status| &status.id), Some(&pod.id));
        }
        if event.container_id == id
            && event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent
        {
            let codes: Vec<_> = event
                .containers_statuses
                .iter()
                .map(|s| s.exit_code)
                .collect();
            assert_eq!(codes, [5], "the event includes the exit code");
        }
        let kind = event.container_event_type().as_str_name();
        seen.push((event.container_id.clone(), kind));
    }
    let of = |wanted: &str| {
        let its = seen.iter().filter(|(id, _)| id == wanted);
        its.map(|(_, kind)| *kind).collect::<Vec<_>>()
    };
    let whole_life = ["CREATED", "STARTED", "STOPPED", "DELETED"];
    let whole_life = whole_life.map(|kind| format!("CONTAINER_{kind}_EVENT"));
    assert_eq!(of(&pod.id), whole_life);
    assert_eq!(of(&id), whole_life);
    daemon.assert_clean();
}

/// With EventedPLEG the kubelet takes the first status of a container for the current one and does not sort them.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_run_of_a_container_comes_first() {
    let (daemon, kubelet) = node().await;
    let mut events = kubelet.events().await;
    let pod = kubelet.plain_pod("runs").await;
    let mut newest = String::new();
    for attempt in 0..6 {
        let mut config = idle("main");
        config.metadata.get_or_insert_default().attempt = attempt;
        let created = kubelet.try_create(&pod, config).await;
        newest = created.expect("CreateContainer");
    }
    let attempts = |statuses: &[v1::ContainerStatus]| {
        let metadata = statuses.iter().filter_map(|it| it.metadata.as_ref());
        metadata.map(|it| it.attempt).collect::<Vec<_>>()
    };
    let request = requests::pod_status(&pod.id, false);
    let status = kubelet.runtime.clone().pod_sandbox_status(request).await;
    let status = status.expect("PodSandboxStatus").into_inner();
    assert_eq!(attempts(&status.containers_statuses), [5, 4, 3, 2, 1, 0]);
    let event = loop {
        let event = next(&mut events).await;
        if event.container_id == newest {
            break event;
        }
    };
    assert_eq!(attempts(&event.containers_statuses), [5, 4, 3, 2, 1, 0]);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stop_of_a_pod_is_reported_once_even_if_its_network_teardown_is_retried() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let gate = daemon.root().join("gate");
    let script = format!(
        r#"#!/bin/sh
if [ "$CNI_COMMAND" = DEL ] && [ ! -e '{gate}' ]; then
    echo '{{"cniVersion": "1.0.0", "code": 100, "msg": "not yet"}}'; exit 1
fi
exec /usr/lib/cni/bridge
"#,
        gate = gate.display()
    );
    daemon.add_program("gated-bridge", &script);
    let network = daemon.bridge("");
    daemon.set_network(&network.replacen(r#""bridge""#, r#""gated-bridge""#, 1));
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("twice").await;
    let mut events = kubelet.events().await;
    let stopped = kubelet.try_stop_pod(&pod.id).await;
    let error = stopped.expect_err("the plugin refuses");
    assert!(error.message().contains("not yet"), "{error}");
    std::fs::write(gate, "").expect("gate");
    kubelet.end(&pod).await;
    for expected in [
        v1::ContainerEventType::ContainerStoppedEvent,
        v1::ContainerEventType::ContainerDeletedEvent,
    ] {
        let event = next(&mut events).await;
        assert!(event.container_event_type() == expected);
        assert_eq!(event.container_id, pod.id);
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_not_zero() {
    let (daemon, kubelet, pod) = node_with_pod("stats").await;
    let script = "dd if=/dev/zero of=/file bs=65536 count=16 2>/dev/null; while :; do :; done";
    let id = kubelet.launch(&pod, shell("main", script)).await;
    let stats = until("statistics", || async {
        let stats = kubelet.stats(&id).await.expect("stats");
        let cpu = stats.cpu.as_ref()?.usage_core_nano_seconds.as_ref()?.value;
        let rate = stats.cpu.as_ref()?.usage_nano_cores.as_ref()?.value;
        let memory = stats.memory.as_ref()?.working_set_bytes.as_ref()?.value;
        let written = stats.writable_layer.as_ref()?.used_bytes.as_ref()?.value;
        let all = cpu > 0 && rate > 0 && memory > 0 && written >= 1 << 20;
        all.then_some(stats)
    })
    .await;
    let attributes = stats.attributes.expect("attributes");
    assert_eq!(
        (attributes.id, attributes.metadata.map(|m| m.name)),
        (id.clone(), Some("main".to_owned()))
    );
    let pods = kubelet
        .runtime
        .clone()
        .list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default())
        .await;
    let pods = pods.expect("ListPodSandboxStats").into_inner().stats;
    let linux = pods[0].linux.as_ref().expect("statistics of a pod");
    assert_eq!((pods.len(), linux.containers.len()), (1, 1));
    let interface = linux
        .network
        .as_ref()
        .and_then(|n| n.default_interface.as_ref());
    assert_eq!(
        interface.map(|interface| interface.name.as_str()),
        Some("eth0")
    );
    // The requests of `crictl stats` and `crictl statsp`.
    let filter = v1::ContainerStatsFilter {
        id: id[..12].to_owned(),
        ..Default::default()
    };
    let request = v1::ListContainerStatsRequest {
        filter: Some(filter),
    };
    let found = kubelet.runtime.clone().list_container_stats(request).await;
    let found = found.expect("ListContainerStats").into_inner().stats;
    assert_eq!(found.len(), 1, "an id prefix is enough");
    let filter = v1::PodSandboxStatsFilter {
        id: pod.id[..12].to_owned(),
        ..Default::default()
    };
    let request = v1::ListPodSandboxStatsRequest {
        filter: Some(filter),
    };
    let found = kubelet
        .runtime
        .clone()
        .list_pod_sandbox_stats(request)
        .await;
    let found = found.expect("ListPodSandboxStats").into_inner().stats;
    assert_eq!(found.len(), 1, "an id prefix is enough");
    let fs = kubelet
        .images
        .clone()
        .image_fs_info(v1::ImageFsInfoRequest::default())
        .await;
    let fs = fs.expect("ImageFsInfo").into_inner();
    let used = fs.image_filesystems[0]
        .used_bytes
        .as_ref()
        .map_or(0, |used| used.value);
    assert!(used > 1 << 20, "{used}");
    daemon.end(&kubelet, [&pod]).await;
}
