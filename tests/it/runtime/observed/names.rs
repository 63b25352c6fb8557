//! The optional rules, in a real Prometheus that scrapes the built-in runtime.

use super::super::image::registry::Registry;
use super::node::{Node, image};
use crate::prelude::*;
use crate::rules::file::{INTERVAL, names_rules, scaled_names};

/// Names without a series after the life of one pod, and why.
const ABSENT: [(&str, &str); 6] = [
    ("containerd_cri_sandbox_list_seconds", "no caller lists"),
    (
        "containerd_cri_stream_sandbox_list_seconds",
        "no caller lists",
    ),
    ("containerd_cri_container_list_seconds", "no caller lists"),
    (
        "containerd_cri_stream_container_list_seconds",
        "no caller lists",
    ),
    ("containerd_cri_container_", "containers end with their pod"),
    (
        "containerd_cri_network_plugin_operations_errors",
        "it succeeds",
    ),
];

/// How the life of a pod looks under the names of CRI-O and containerd.
const WANTED: [(&str, f64); 12] = [
    (
        "container_runtime_crio_operations_total{operation=\"RunPodSandbox\"}",
        2.0,
    ),
    (
        "container_runtime_crio_operations_errors_total{operation=\"PullImage\"}",
        1.0,
    ),
    ("container_runtime_crio_image_pulls_success_total", 1.0),
    ("container_runtime_crio_image_pulls_failure_total", 1.0),
    ("container_runtime_crio_containers_oom_total", 0.0),
    ("containerd_cri_sandbox_runtime_create_seconds_count", 2.0),
    (
        "containerd_cri_sandbox_runtime_create_seconds_bucket{le=\"+Inf\"}",
        2.0,
    ),
    ("containerd_cri_container_start_seconds_count", 1.0),
    ("containerd_cri_sandbox_delete_network_seconds_count", 1.0),
    (
        "containerd_cri_sandboxed_image_pulls_total{status=\"failure\"}",
        1.0,
    ),
    (
        "containerd_cri_sandboxed_in_progress_image_pulls_total",
        0.0,
    ),
    (
        "grpc_server_handled_total{grpc_method=\"PullImage\", grpc_code=\"OK\", grpc_service=\"runtime.v1.ImageService\", grpc_type=\"unary\"}",
        1.0,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_other_runtimes_are_recorded() {
    let collector = Collector::new(Manner::Takes).await;
    let add = "echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.1.2.3/24\"}]}'";
    let node = Node::start(&collector, add).await;
    let target = [("node", node.proxy.admin_port())];
    let prometheus = Prometheus::start(INTERVAL, &target, &scaled_names("main")).await;
    let registry = Registry::start().await;
    let name = registry.push("tools", "1", &image());

    let client = node.client().await;
    let first = node.run(&client).await;
    assert_eq!(client.call(node.pull_call(&name)).await.code(), 0);
    let missing = format!("{}-missing", name);
    assert_ne!(client.call(node.pull_call(&missing)).await.code(), 0);
    node.start_container(&client, &first, &name).await;
    node.remove(&client, &first).await;
    let second = node.run(&client).await;

    for (query, wanted) in WANTED {
        until_true(query, async || {
            let samples = prometheus.query(query).await.expect(query);
            samples.len() == 1 && samples[0].0 == wanted
        })
        .await;
    }
    for rule in names_rules() {
        let name = rule.record.expect("a recording rule");
        let labels = rule.labels.iter();
        let labels: Vec<_> = labels
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        let code = rule.labels.get("grpc_code");
        let may_be_absent = ABSENT.iter().any(|(start, _)| name.starts_with(start))
            || code.is_some_and(|code| code != "OK");
        if !may_be_absent {
            prometheus
                .wait(&format!("{name}{{{}}}", labels.join(",")))
                .await;
        }
    }
    node.remove(&client, &second).await;
    node.proxy.stop().await;
}
