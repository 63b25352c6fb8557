//! Calls that hang, are slow, answer too much, or fail.

use criscope::cri::status::Code;
use futures_util::future::join;

use super::{Fired, Node, Ordinary, pace, stays};
use crate::harness::pods::{Kubelet, Manner, long_list};
use crate::prelude::*;

/// What a kubelet asks again and again.
async fn poll(kubelet: &Kubelet) {
    for method in ["ListPodSandbox", "ListContainers", "Status"] {
        kubelet.plain(method).await;
    }
    pace(100).await;
}

/// A sandbox and a pull that hang, a start that does not end, and lists that are slow, or large.
pub(super) async fn slow(node: Node<'_>, it: &Ordinary) -> Fired {
    let kubelet = it.kubelet().await;
    node.is_well_while(async || poll(&kubelet).await).await;

    // A start that fails for good. It grows old while the others are drilled.
    it.manners
        .set("CreateContainer", Manner::Fails(Code::Internal));
    let pod = kubelet.sandbox("never-up").await.expect("a sandbox");
    assert_eq!(kubelet.container(&pod, 0).await, None);
    it.manners.set("RunPodSandbox", Manner::Hangs);
    it.manners.set("PullImage", Manner::Hangs);
    let client = kubelet.client();
    let sandbox = client.start(Call::plain("RunPodSandbox")).await;
    let pull = client.start(Call::image("PullImage", message(b""))).await;
    it.manners
        .set("ListContainers", Manner::Late(Duration::from_millis(1200)));
    it.manners
        .set("ListPodSandbox", Manner::Says(long_list(13 << 20)));

    let mut fired = vec![node.fires("CriscopeCallStuck", stays).await];
    let (polls, sizes) = join(
        node.fires("CriscopePollSlow", async || {
            let lists = (0..4).map(|_| kubelet.plain("ListContainers"));
            futures_util::future::join_all(lists).await
        }),
        node.fires("CriscopeResponseNearLimit", async || {
            kubelet.plain("ListPodSandbox").await;
            pace(1000).await;
        }),
    )
    .await;
    fired.extend([polls, sizes]);
    fired.push(node.fires("CriscopePodStartStuck", stays).await);
    fired.push(node.fires("CriscopeImagePullStalled", stays).await);
    drop((sandbox, pull));
    fired
}

/// Calls that change a pod, and pulls, that fail by a fault of the runtime.
pub(super) async fn failing(node: Node<'_>, it: &Ordinary) -> Fired {
    let kubelet = it.kubelet().await;
    let work = async || {
        kubelet.start("app", true).await;
        pace(50).await;
    };
    node.is_well_while(work).await;
    it.manners
        .set("CreateContainer", Manner::Fails(Code::Internal));
    it.manners.set("PullImage", Manner::Fails(Code::Unknown));
    let fail = async || {
        // One pod with a mistake is no fault of the node. A kubelet creates no container after a failed pull.
        for name in ["app-1", "app-2"] {
            if let Some(pod) = kubelet.sandbox(name).await {
                kubelet.pull(&pod).await;
            }
        }
        if let Some(pod) = kubelet.sandbox("pulled").await {
            kubelet.container(&pod, 0).await;
        }
        pace(50).await;
    };
    let burn = async |window: &str| {
        let alert = "CriscopeErrorBudgetBurn";
        let more = format!(", slo=\"calls\", window=\"{window}\"");
        node.fires_with(alert, &more, stays).await;
        (alert.to_owned(), Some(window.to_owned()))
    };
    let (pulls, hour, six, day, days, ()) = tokio::join!(
        node.fires("CriscopeImagePullFailing", fail),
        burn("1h"),
        burn("6h"),
        burn("1d"),
        burn("3d"),
        // The faults go on when the pulls have had their alert.
        node.fires_with(
            "CriscopeErrorBudgetBurn",
            ", slo=\"calls\", window=\"3d\"",
            fail
        ),
    );
    vec![pulls, hour, six, day, days]
}
