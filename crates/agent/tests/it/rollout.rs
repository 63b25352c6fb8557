//! The rollout over nodes: installers as programs, and many of them in this process with a stand-in for the work on a node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use criscope_agent::rollout::participant::{InstallerIdentity, NodeWork, Participant};
use criscope_agent::rollout::{Goal, MaxParallel, NodeState, RolloutPolicy, RolloutTiming};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::AGENT;
use crate::api::Api;
use crate::daemon::Daemon;
use crate::plugin::PLUGIN;
use crate::support::{documents, read, run, start, until};

/// A lease time that a busy test machine keeps.
const TIMING: RolloutTiming = RolloutTiming {
    lease: Duration::from_secs(3),
    renewal: Duration::from_millis(200),
    spread: Duration::from_millis(100),
    pass_over: Duration::from_secs(1),
};

/// The nodes of a test.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// Why criscope does not become healthy on a node.
    broken: Mutex<BTreeMap<String, String>>,
    /// Nodes whose work never ends.
    endless: Mutex<Vec<String>>,
    /// The nodes that are worked on.
    at_work: Mutex<Vec<String>>,
    /// The most that were worked on at the same time.
    most: Mutex<usize>,
    /// The nodes in the order in which work on them began.
    order: Mutex<Vec<String>>,
}

pub(crate) struct Work {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) node: String,
}

impl NodeWork for Work {
    async fn work(&self) -> Result<(), String> {
        let is_endless = self
            .nodes
            .endless
            .lock()
            .expect("nodes")
            .contains(&self.node);
        if is_endless {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.check().await
    }

    fn interrupt(&self) {}

    async fn check(&self) -> Result<(), String> {
        let broken = self.nodes.broken.lock().expect("nodes");
        broken
            .get(&self.node)
            .map_or(Ok(()), |reason| Err(reason.clone()))
    }

    fn note_state(&self, state: NodeState) {
        let mut at_work = self.nodes.at_work.lock().expect("nodes");
        at_work.retain(|node| *node != self.node);
        if [NodeState::Working, NodeState::Soaking].contains(&state) {
            at_work.push(self.node.clone());
        }
        let mut most = self.nodes.most.lock().expect("nodes");
        *most = at_work.len().max(*most);
        if state == NodeState::Working {
            self.nodes
                .order
                .lock()
                .expect("nodes")
                .push(self.node.clone());
        }
    }
}

async fn client(api: &Api) -> kube::Client {
    let file = Kubeconfig::read_from(api.kubeconfig("installer")).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    kube::Client::try_from(config.expect("a configuration")).expect("a client")
}

pub(crate) fn policy(max_parallel: MaxParallel, canary: Option<&str>) -> RolloutPolicy {
    RolloutPolicy {
        max_parallel,
        soak: Duration::from_millis(100),
        canary: canary.map(str::to_owned),
    }
}

pub(crate) async fn participant(api: &Api, node: &str, policy: &RolloutPolicy) -> Participant {
    Participant {
        client: client(api).await,
        namespace: "criscope-node".to_owned(),
        identity: InstallerIdentity {
            node: node.to_owned(),
            pod_uid: format!("pod-{node}"),
            revision: "1".to_owned(),
            goal: Goal::Install,
        },
        policy: policy.clone(),
        timing: TIMING,
    }
}

/// An installer on a node, which is started again when it has failed.
async fn installer(
    api: &Api,
    nodes: &Arc<Nodes>,
    node: &str,
    policy: &RolloutPolicy,
) -> JoinHandle<()> {
    let participant = participant(api, node, policy).await;
    let work = Work {
        nodes: Arc::clone(nodes),
        node: node.to_owned(),
    };
    tokio::spawn(async move {
        while participant
            .run(&work, std::future::pending())
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

pub(crate) async fn is_in(api: &Api, node: &str, state: &str) {
    let what = format!("{node} in state {state}");
    until(&what, async || {
        (api.state_of(node).as_deref() == Some(state)).then_some(())
    })
    .await;
}

/// Reasons of the events on a Node, in the order in which they happened.
pub(crate) fn events_on(api: &Api, node: &str) -> Vec<String> {
    let events = api.state.events.lock().expect("events");
    let mut found: Vec<_> = events
        .values()
        .filter(|event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| about.name.as_deref() == Some(node))
        })
        .map(|event| {
            (
                event.event_time.clone(),
                event.reason.clone().unwrap_or_default(),
            )
        })
        .collect();
    found.sort_by_key(|(time, _)| time.as_ref().map(|time| time.0));
    found.into_iter().map(|(_, reason)| reason).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installer_waits_for_its_turn_and_a_failed_node_stops_the_others() {
    let (api, daemon) = (Api::start().await, Daemon::start().await);
    for node in ["node-1", "node-2"] {
        api.add_node(node, &json!({}));
    }
    let of = format!("--daemon={}", daemon.address);
    // There is no such process, so that nothing of this machine is touched.
    let args = |node: &'static str| {
        [
            "install",
            "--namespace=criscope-node",
            "--pid=4294967295",
            "--pod-uid=first",
            &*of,
            "--node",
            node,
        ]
    };
    let failed = run(AGENT, &args("node-1"), &api.kubeconfig("installer")).await;
    assert!(!failed.status.success(), "{failed:?}");
    assert_eq!(
        api.state_of("node-1").as_deref(),
        Some("failed"),
        "{failed:?}"
    );
    assert_eq!(
        events_on(&api, "node-1"),
        ["CriscopeInstalling", "CriscopeInstallFailed"]
    );
    // A restart of the container does not try again, and another node waits.
    let again = start(AGENT, &args("node-1"), &api.kubeconfig("installer"));
    let waiting = start(AGENT, &args("node-2"), &api.kubeconfig("installer"));
    is_in(&api, "node-2", "waiting").await;
    until("a reason", async || {
        let leases = api.state.leases.lock().ok()?;
        leases.annotation("criscope-install", "criscope.dev/stopped")
    })
    .await;
    // What waits does not ask again and again: it watches.
    let lease = "GET /apis/coordination.k8s.io/v1/namespaces/criscope-node/leases/";
    let requests = api.count(lease);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(api.count(lease), requests);
    let status = run(PLUGIN, &["status"], &api.kubeconfig("alice")).await;
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        said.contains("0 of 2 nodes done (1 failed, 1 waiting)"),
        "{said}"
    );
    assert!(said.contains("stopped: node-1 failed"), "{said}");
    assert!(
        said.contains("`kubectl criscope rollout retry node-1`"),
        "{said}"
    );
    let retried = run(
        PLUGIN,
        &["rollout", "retry", "node-2"],
        &api.kubeconfig("alice"),
    )
    .await;
    assert!(!retried.status.success(), "{retried:?}");
    // A person decides to go on without it.
    let resumed = run(PLUGIN, &["rollout", "resume"], &api.kubeconfig("alice")).await;
    assert!(resumed.status.success(), "{resumed:?}");
    is_in(&api, "node-2", "failed").await;
    assert_eq!(api.state_of("node-1").as_deref(), Some("skipped"));
    drop((again, waiting));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_in_batches_canaries_first_and_a_dead_installer_blocks_no_other() {
    let api = Api::start().await;
    let nodes = Arc::new(Nodes::default());
    let policy = policy(MaxParallel::Percent(25), Some("ring=0"));
    let names: Vec<_> = (0..12).map(|n| format!("n{n:02}")).collect();
    for name in &names {
        let ring = u8::from(*name != "n07");
        api.add_node(name, &json!({"ring": ring.to_string()}));
    }
    nodes.endless.lock().expect("nodes").push("n03".to_owned());
    let broken = ("n05".to_owned(), "kubelet.service is not active".to_owned());
    nodes.broken.lock().expect("nodes").extend([broken]);
    let mut tasks = BTreeMap::new();
    // The failure of n05 would keep n03 from its turn, which is the last one if its installer gives the turns.
    for name in names.iter().filter(|name| *name != "n05") {
        tasks.insert(name, installer(&api, &nodes, name, &policy).await);
    }
    // The machine of one node is off during its turn.
    is_in(&api, "n03", "working").await;
    tasks[&"n03".to_owned()].abort();
    nodes
        .at_work
        .lock()
        .expect("nodes")
        .retain(|node| node != "n03");
    let broken = installer(&api, &nodes, "n05", &policy).await;
    is_in(&api, "n05", "failed").await;
    is_in(&api, "n03", "lost").await;
    // One node is added. Nothing is touched while one has failed.
    api.add_node("n12", &json!({"ring": "1"}));
    let added = installer(&api, &nodes, "n12", &policy).await;
    is_in(&api, "n12", "waiting").await;
    until("the stop", async || {
        let leases = api.state.leases.lock().ok()?;
        leases.annotation("criscope-install", "criscope.dev/stopped")
    })
    .await;
    // A turn that was given before the stop goes on.
    until("the end of turns", async || {
        let at_work = names.iter().filter_map(|name| api.state_of(name));
        let mut at_work =
            at_work.filter(|state| ["turn", "working", "soaking"].contains(&&**state));
        at_work.next().is_none().then_some(())
    })
    .await;
    let begun = nodes.order.lock().expect("nodes").len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(nodes.order.lock().expect("nodes").len(), begun);
    // One node is removed, and the broken one is mended.
    api.state.nodes.lock().expect("nodes").remove("n03");
    until("the end of the record", async || {
        api.state_of("n03").is_none().then_some(())
    })
    .await;
    nodes.broken.lock().expect("nodes").clear();
    let retried = run(PLUGIN, &["rollout", "retry"], &api.kubeconfig("alice")).await;
    assert!(retried.status.success(), "{retried:?}");
    for name in names.iter().map(String::as_str).chain(["n12"]) {
        if name != "n03" {
            is_in(&api, name, "done").await;
        }
    }
    // The event follows the state.
    broken.await.expect("no panic");
    assert_eq!(nodes.order.lock().expect("nodes")[0], "n07");
    let most = *nodes.most.lock().expect("nodes");
    assert!((2..=3).contains(&most), "{most} of at most 3");
    assert_eq!(
        events_on(&api, "n05"),
        [
            "CriscopeInstalling",
            "CriscopeInstallFailed",
            "CriscopeInstalling",
            "CriscopeInstalled"
        ]
    );
    assert_eq!(
        events_on(&api, "n03"),
        ["CriscopeInstalling", "CriscopeInstallLost"]
    );
    // The last one gives the Lease back.
    added.await.expect("no panic");
    until("a free Lease", async || {
        let leases = api.state.leases.lock().ok()?;
        leases.holder("criscope-install").is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_installer_gives_the_turns_when_the_one_before_is_gone() {
    let api = Api::start().await;
    let nodes = Arc::new(Nodes::default());
    let policy = policy(MaxParallel::Nodes(1), None);
    for node in ["a", "b", "c"] {
        api.add_node(node, &json!({}));
    }
    let paused = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        // As criscope 0.2 has left it: a holder that is gone, and no duration.
        "metadata": {"name": "criscope-install", "namespace": "criscope-node", "resourceVersion": "1"},
        "spec": {"holderIdentity": "gone"},
    });
    {
        let mut leases = api.state.leases.lock().expect("leases");
        leases.objects.insert("criscope-install".to_owned(), paused);
    }
    let first = installer(&api, &nodes, "a", &policy).await;
    nodes.endless.lock().expect("nodes").push("b".to_owned());
    is_in(&api, "a", "done").await;
    first.await.expect("no panic");
    // The next one dies while it gives the turns and has one.
    let second = installer(&api, &nodes, "b", &policy).await;
    is_in(&api, "b", "working").await;
    second.abort();
    let third = installer(&api, &nodes, "c", &policy).await;
    // Nothing of the dead installer goes on. Node c has to wait for its turn, so its installer is seen as the holder.
    until("another holder", async || {
        let leases = api.state.leases.lock().ok()?;
        (leases.holder("criscope-install")? == "c").then_some(())
    })
    .await;
    is_in(&api, "b", "lost").await;
    is_in(&api, "c", "done").await;
    third.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_removal_turns_the_installer_round_and_waits_for_every_node() {
    let api = Api::start().await;
    let set: Value = documents(&read("base/install/daemonset.yaml")).remove(0);
    *api.state.daemon_set.lock().expect("a set") = set;
    for node in ["a", "b"] {
        api.add_node(node, &json!({}));
    }
    let nodes = Arc::new(Nodes::default());
    let installs = installer(&api, &nodes, "a", &policy(MaxParallel::Nodes(1), None)).await;
    installs.await.expect("no panic");
    is_in(&api, "a", "done").await;
    let args = [
        "uninstall-cluster",
        "--namespace=criscope-node",
        "--patience=1s",
    ];
    let kubeconfig = api.kubeconfig("uninstaller");
    let failed = run(AGENT, &args, &kubeconfig).await;
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success(), "{said}");
    assert!(said.contains("0 of 1 nodes are restored"), "{said}");
    let set = api.state.daemon_set.lock().expect("a set").clone();
    let args_now = set["spec"]["template"]["spec"]["initContainers"][0]["args"].to_string();
    assert!(args_now.contains("--uninstall"), "{args_now}");
    // The node is restored by its installer.
    {
        let mut leases = api.state.leases.lock().expect("leases");
        let record = leases.objects.get_mut("a").expect("a record");
        record["metadata"]["annotations"]["criscope.dev/goal"] = json!("uninstall");
    }
    let done = run(AGENT, &args, &kubeconfig).await;
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said, "1 of 1 nodes are restored\n");
}
