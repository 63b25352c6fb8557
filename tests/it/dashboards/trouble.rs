//! The first row of the dashboards, for a node with ten pods in trouble and for one without any pod: it always has numbers.

use criscope::cri::status::Code;

use super::live::ask;
use super::panels::{Query, all};
use crate::harness::pods::{Kubelet, Manner, Manners};
use crate::prelude::*;
use crate::rules::file::{INTERVAL, scaled};

const BUSY_NODE: &str = "busy";
const IDLE_NODE: &str = "idle";

/// Pods whose image does not exist, and pods whose container cannot be created. None is given up.
const MISSING_IMAGES: usize = 7;
const BROKEN_CONTAINERS: usize = 3;

async fn fail_to_start(kubelet: &Kubelet, manners: &Manners) {
    manners.set("PullImage", Manner::Fails(Code::NotFound));
    for n in 0..MISSING_IMAGES {
        let pod = kubelet.sandbox(&format!("no-image-{n}")).await;
        kubelet.pull(&pod.expect("a sandbox")).await;
    }
    manners.set("CreateContainer", Manner::Fails(Code::Internal));
    for n in 0..BROKEN_CONTAINERS {
        let pod = kubelet.sandbox(&format!("broken-{n}")).await;
        let container = kubelet.container(&pod.expect("a sandbox"), 0).await;
        assert_eq!(container, None);
    }
}

/// The queries of the first rows, for one node.
fn first_rows(node: &str) -> Vec<(String, Query)> {
    let mut queries = Vec::new();
    for dashboard in all() {
        for panel in dashboard.first_row() {
            let own = panel.queries().into_iter();
            // Of several queries of a panel one is enough: a list of causes is empty where none is.
            let always = own.rev().find(|query| !query.expr.ends_with("> 0"));
            let place = format!("{} of {node}: {}", dashboard.file, panel.title());
            queries.extend(always.map(|query| (place, query.on_node(node))));
        }
    }
    queries
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_row_is_never_blank() {
    let (fake, other) = (Fake::new(), Fake::new());
    let manners = Manners::of(&fake);
    let (busy, idle) = tokio::join!(
        Start::new(crate::CRISCOPE).upstream(fake.path()).ready(),
        Start::new(crate::CRISCOPE).upstream(other.path()).ready(),
    );
    let nodes = [
        (BUSY_NODE, busy.admin_port()),
        (IDLE_NODE, idle.admin_port()),
    ];
    let prometheus = Prometheus::start(INTERVAL, &nodes, &scaled()).await;
    let kubelet = Kubelet::before(&busy).await;
    fail_to_start(&kubelet, &manners).await;

    // While the starts fail, not when they end.
    for (cause, node, pods) in [
        ("image_not_found", BUSY_NODE, MISSING_IMAGES),
        ("container_create_failed", BUSY_NODE, BROKEN_CONTAINERS),
        ("image_not_found", IDLE_NODE, 0),
    ] {
        let query = format!(
            "sum(criscope_pod_starts_failing{{instance=\"{node}\", cause=\"{cause}\"}}) == {pods}"
        );
        until_true(&query, async || prometheus.has(&query).await).await;
    }
    for node in [BUSY_NODE, IDLE_NODE] {
        for (place, query) in first_rows(node) {
            until_true(&place, async || {
                ask(&prometheus, &query).await.expect("an answer")
            })
            .await;
        }
    }
    drop(kubelet);
    busy.stop().await;
    idle.stop().await;
}
