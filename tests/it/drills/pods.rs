//! Pods that start late or not at all, and containers that end again and again.

use criscope::cri::status::Code;

use super::{Fired, Node, Ordinary, pace, stays};
use crate::harness::pods::{Manner, oom_killed};
use crate::prelude::*;

/// More than ten seconds, which is slow.
const SLOW: Duration = Duration::from_secs(11);

pub(super) async fn drill(node: Node<'_>, it: &Ordinary) -> Fired {
    let kubelet = it.kubelet().await;
    node.is_well_while(async || {
        kubelet.start("well", false).await;
        pace(1000).await;
    })
    .await;
    let (pod, _) = kubelet.start("loop", false).await.expect("a pod");

    let late = format!(
        r#"{{"method": "RunPodSandbox", "effect": {{"delay": {{"ms": {}}}}}, "for_ms": 3600000}}"#,
        SLOW.as_millis()
    );
    let (status, text) = it.proxy.by_socket("POST", "/debug/faults", &late).await;
    assert_eq!(status, 201, "{text}");
    let many: Vec<_> = (0..12).map(|i| format!("slow-{i}")).collect();
    let slow = async {
        let starts = many.iter().map(|name| kubelet.start(name, false));
        futures_util::future::join_all(starts).await;
        node.fires("CriscopePodStartSlow", stays).await
    };
    let attempt = std::cell::Cell::new(0);
    let restart = async || {
        attempt.set(attempt.get() + 1);
        let container = kubelet.container(&pod, attempt.get()).await;
        kubelet.ask(&container.expect("a container")).await;
        pace(150).await;
    };
    it.manners
        .set("ContainerStatus", Manner::Says(oom_killed()));
    let (slow, storm, kills) = tokio::join!(
        slow,
        node.fires("CriscopeContainerRestartStorm", restart),
        node.fires("CriscopeOomKills", stays),
    );

    // Only now, so that it does not fail what is slow above.
    let (status, _) = it.proxy.by_socket("DELETE", "/debug/faults", "").await;
    assert_eq!(status, 200);
    it.manners
        .set("CreateContainer", Manner::Fails(Code::Internal));
    let failing = node.fires("CriscopePodStartFailing", async || {
        for name in ["failing-1", "failing-2", "failing-3"] {
            let pod = kubelet.sandbox(name).await.expect("a sandbox");
            kubelet.container(&pod, 0).await;
        }
        pace(300).await;
    });
    vec![slow, storm, kills, failing.await]
}
