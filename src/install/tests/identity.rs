//! The names of Node and cluster in what criscope exports.

use super::fixtures::{CONTAINERD, Fixture, K3S, KUBEADM};
use super::node::Node;
use crate::install::{InstallMode, InstallOptions, InstallPlan, PlannedContent};

const DROP_IN: &str = "/etc/systemd/system/criscope.service.d/criscope-identity.conf";

const NAMED: Fixture = Fixture {
    name: "another name for the Node",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        (
            "/usr/lib/systemd/system/containerd.service",
            "[Service]\nExecStart=/usr/bin/containerd\n",
        ),
        (
            "/etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet --hostname-override=ip-10-0-0-7.internal \\\n  --container-runtime-endpoint=unix:///run/containerd/containerd.sock\n",
        ),
    ],
};

/// The lines of the drop-in that a plan writes.
fn planned(node: &Node, cluster: Option<&str>) -> Option<String> {
    let options = InstallOptions {
        cluster: cluster.map(str::to_owned),
        ..node.options(InstallMode::Front)
    };
    let plan = InstallPlan::make(&node.root, node, &options).expect("a plan");
    let edit = plan
        .edits
        .into_iter()
        .find(|edit| edit.path.ends_with(DROP_IN));
    edit.map(|edit| match edit.content {
        PlannedContent::Text(text, _) => text,
        other => panic!("{other:?}"),
    })
}

#[test]
fn the_name_of_the_node_is_the_kubelets() {
    let text = planned(&Node::new(&NAMED), None).expect("a drop-in");
    assert!(
        text.contains("\nEnvironment=NODE_NAME=ip-10-0-0-7.internal\n"),
        "{text}"
    );
    assert!(!text.contains("OTEL"), "{text}");
    // The unit itself says the host name.
    assert_eq!(planned(&Node::new(&KUBEADM), None), None);
    let node = Node::new(&K3S);
    node.write(
        "/etc/rancher/k3s/config.yaml.d/name.yaml",
        "node-name: edge-7\n",
    );
    let text = planned(&node, None).expect("a drop-in");
    assert!(text.contains("\nEnvironment=NODE_NAME=edge-7\n"), "{text}");
}

#[test]
fn a_cluster_that_was_told_once_stays_until_it_is_uninstalled() {
    let node = Node::new(&KUBEADM);
    let original = node.files();
    let options = InstallOptions {
        cluster: Some("prod-eu".to_owned()),
        ..node.options(InstallMode::Front)
    };
    let plan = InstallPlan::make(&node.root, &node, &options).expect("a plan");
    node.installer().install(&plan).expect("installed");
    let text = node.root.text(DROP_IN).expect("read").expect("there");
    assert!(
        text.contains("\nEnvironment=OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name=prod-eu\n"),
        "{text}"
    );
    assert!(node.plan(InstallMode::Front).expect("a plan").is_empty());
    node.uninstall().expect("uninstalled");
    assert_eq!(node.files(), original);
}
