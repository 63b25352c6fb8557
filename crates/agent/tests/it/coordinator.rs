//! How the installer that gives the turns ends.

use std::sync::Arc;
use std::time::Duration;

use criscope_agent::rollout::MaxParallel;
use criscope_agent::rollout::participant::ParticipantError;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::Api;
use crate::rollout::{Work, events_on, participant, policy};
use crate::support::until;

/// An installer that waits on a node until the sender is dropped.
async fn stoppable_installer(api: &Api, node: &str) -> (oneshot::Sender<()>, JoinHandle<()>) {
    api.add_node(node, &json!({}));
    let participant = participant(api, node, &policy(MaxParallel::Nodes(1), None)).await;
    let work = Work {
        nodes: Arc::default(),
        node: node.to_owned(),
    };
    let (sender, stop) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stop = async { drop(stop.await) };
        let result = participant.run(&work, stop).await;
        assert!(
            matches!(result, Err(ParticipantError::Stopped)),
            "{result:?}"
        );
    });
    (sender, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installer_that_ends_leaves_a_free_lease_whatever_is_under_way() {
    let api = Api::start().await;
    let free = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {},
        "metadata": {"name": "criscope-install", "namespace": "criscope-node",
            "labels": {"criscope.dev/rollout": "coordinator"}, "annotations": {"criscope.dev/paused": "by a person"}},
    });
    let change = |lease: Value| {
        api.state
            .leases
            .lock()
            .expect("leases")
            .change("MODIFIED", lease)
    };
    let lease = || api.state.leases.lock().expect("leases").objects["criscope-install"].clone();
    change(free);
    let write = "PUT /apis/coordination.k8s.io/v1/namespaces/criscope-node/leases/criscope-install";
    // The API server answers the application for the Lease only after the installer was told to end.
    let held = api.hold(write);
    let (stop, mut ended) = stoppable_installer(&api, "a").await;
    until("an application", async || {
        (held.waiting() == 1).then_some(())
    })
    .await;
    drop(stop);
    let early = timeout(Duration::from_secs(1), &mut ended).await;
    drop(held);
    if early.is_err() {
        ended.await.expect("no panic");
    }
    until("an answer", async || (api.count(write) > 0).then_some(())).await;
    assert!(lease()["spec"]["holderIdentity"].is_null(), "{}", lease());
    // The Lease is changed while the installer gives it up.
    let (stop, ended) = stoppable_installer(&api, "b").await;
    until("a holder", async || {
        (lease()["spec"]["holderIdentity"] == "b").then_some(())
    })
    .await;
    let held = api.hold(write);
    drop(stop);
    until("a release", async || (held.waiting() > 0).then_some(())).await;
    change(lease());
    drop(held);
    ended.await.expect("no panic");
    assert!(lease()["spec"]["holderIdentity"].is_null(), "{}", lease());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_coordinator_has_begun_for_a_node_is_finished() {
    let api = Api::start().await;
    api.add_node("gone", &json!({}));
    let record = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {},
        "metadata": {"name": "gone", "namespace": "criscope-node", "labels": {"criscope.dev/rollout": "0"},
            "annotations": {"criscope.dev/state": "working"}},
    });
    api.state
        .leases
        .lock()
        .expect("leases")
        .change("ADDED", record);
    let held = api.hold("PUT /apis/coordination.k8s.io/v1/namespaces/criscope-node/leases/gone");
    let (stop, mut ended) = stoppable_installer(&api, "a").await;
    until("a lost node", async || (held.waiting() > 0).then_some(())).await;
    drop(stop);
    let early = timeout(Duration::from_secs(1), &mut ended).await;
    drop(held);
    if early.is_err() {
        ended.await.expect("no panic");
    }
    until("the lost node", async || {
        (api.state_of("gone")? == "lost").then_some(())
    })
    .await;
    assert_eq!(events_on(&api, "gone"), ["CriscopeInstallLost"]);
}
