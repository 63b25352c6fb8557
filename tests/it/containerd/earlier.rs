//! Pods that were up before criscope came: a real containerd, and what criscope says of them from its lists.

use super::{before, end};
use crate::commands::printed;
use crate::prelude::*;

/// The entry of a pod in the list.
async fn entry(proxy: &Proxy, name: &str) -> Option<Value> {
    let list = proxy.json("/debug/pods?by=pod").await;
    let pods = list["pods"].as_array().expect("pods");
    pods.iter().find(|pod| pod["name"] == name).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_from_before_are_told_from_lists_until_a_call_names_them() {
    let containerd = Containerd::new().await;
    let direct = Kubelet::of_containerd(&containerd).await;
    direct.imported().await;
    let web = direct.plain_pod("web").await;
    direct.launch(&web, idle("app")).await;
    let job = direct.plain_pod("job").await;
    let failed = direct.launch(&job, shell("app", "exit 3")).await;
    direct.ended(&failed).await;

    let proxy = before(&containerd).await;
    until_true("the pods of the list", async || {
        let job = entry(&proxy, "job").await;
        job.is_some_and(|job| job["state"] == "failed")
    })
    .await;
    let said = printed(&proxy, &["explain", "web"]).await;
    let first = "the pod was up before criscope came (its start was not seen); running for ";
    assert!(said.starts_with(first), "{said}");
    assert!(said.contains("\napp        running"), "{said}");
    let said = printed(&proxy, &["explain", "job"]).await;
    assert!(said.starts_with("app has been down for "), "{said}");
    assert!(said.contains("code 3"), "{said}");

    let kubelet = Kubelet::before(&proxy.socket(), &containerd).await;
    kubelet.end(&web).await;
    until_true("the story of the stop", async || {
        let web = entry(&proxy, "web").await.expect("known");
        let reason = web["reason"].as_str().expect("a reason");
        matches!(web["state"].as_str(), Some("stopped" | "gone"))
            && !reason.contains("before criscope came")
    })
    .await;
    kubelet.end(&job).await;
    proxy.stop().await;
    end(containerd);
}
