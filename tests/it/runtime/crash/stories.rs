//! Other events while the daemon is down.

use super::left;
use super::life::{Life, Verb};
use super::node::{Node, Witness};
use crate::prelude::*;

const MADE: [Verb; 3] = [Verb::Run, Verb::Create, Verb::Start];

async fn made(node: &Node, mut life: Life) -> Life {
    for verb in MADE {
        life.ask(node, verb).await.expect("made");
    }
    life
}

async fn removed(node: &Node, mut life: Life) {
    for verb in [Verb::StopPod, Verb::RemovePod] {
        life.ask(node, verb).await.expect("removed");
    }
}

/// The other tests rely on this: every object of a pod is found.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_leaves_is_found() {
    let mut node = Node::new().await;
    node.start(None).await;
    let life = made(&node, Life::new(&node, "seen", true)).await;
    let found = left::find(&node, &[]).join("\n");
    for kind in [
        "mount ",
        "cgroup ",
        "process ",
        "addresses ",
        "links ",
        "rule ",
    ] {
        assert!(found.contains(kind), "no {kind}in\n{found}");
    }
    for dir in [
        "sandboxes",
        "containers",
        "results",
        "pods",
        "ns",
        "oci/runc",
    ] {
        assert!(found.contains(&format!("{dir}/")), "no {dir} in\n{found}");
    }
    removed(&node, life).await;
    left::nothing(&node, "the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_ends_while_the_daemon_is_down() {
    let mut node = Node::new().await;
    node.start(None).await;
    let end = node.path("end");
    fs::create_dir(&end).expect("dir");
    let mut life = Life::new(&node, "short", false)
        .doing("while [ ! -e /end/now ]; do sleep 0.05; done; exit 7");
    life.config.mounts = vec![v1::Mount {
        container_path: "/end".to_owned(),
        host_path: end.display().to_string(),
        ..Default::default()
    }];
    let life = made(&node, life).await;
    let (_, pid) = node.container(&life.container).await.expect("status");
    node.kill();
    fs::write(end.join("now"), "").expect("file");
    until_true("its end", async || {
        criscope_shim::record::start_time(pid).is_none()
    })
    .await;
    node.start(None).await;
    let (status, _) = node.container(&life.container).await.expect("status");
    assert_eq!(status.state, v1::ContainerState::ContainerExited as i32);
    assert_eq!((status.exit_code, &status.reason[..]), (7, "Error"));
    assert!(status.finished_at > status.started_at && status.started_at > 0);
    removed(&node, life).await;
    left::nothing(&node, "the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_is_killed() {
    for (looking, shared) in [(true, false), (false, false), (true, true)] {
        let when = format!("looking: {looking}, shared: {shared}");
        let mut node = Node::new().await;
        node.start(None).await;
        let mut life = made(&node, Life::new(&node, "shimless", shared).writing()).await;
        let (_, pid) = node.container(&life.container).await.expect("status");
        if !looking {
            node.kill();
        }
        let shim = left::processes(&node)
            .into_iter()
            .find(|(_, what)| what.contains("criscope-shim") && what.contains(&life.sandbox));
        Node::end(shim.expect("a shim").0.cast_unsigned());
        if !looking {
            node.start(None).await;
        }
        let status = until("an end", || async {
            let (status, _) = node.container(&life.container).await?;
            (status.state == v1::ContainerState::ContainerExited as i32).then_some(status)
        })
        .await;
        assert_eq!(
            (status.exit_code, &status.reason[..]),
            (255, "Unknown"),
            "{when}"
        );
        assert!(status.finished_at > 0, "{when}");
        until_true("the end of its process", async || {
            criscope_shim::record::start_time(pid).is_none()
        })
        .await;
        if shared {
            // The pod's init died with its shim: it can run no more containers.
            until("a pod that is not ready", || async {
                let state = life.sandbox_state(&node).await?;
                (state == v1::PodSandboxState::SandboxNotready as i32).then_some(())
            })
            .await;
        } else {
            life.next();
            for verb in [Verb::Create, Verb::Start, Verb::StopContainer] {
                life.ask(&node, verb).await.expect("the next one");
            }
        }
        removed(&node, life).await;
        left::nothing(&node, &when).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_is_started_again() {
    let mut node = Node::new().await;
    node.start(None).await;
    let life = made(&node, Life::new(&node, "booted", false)).await;
    node.kill();
    left::power_off(&node);
    fs::remove_dir_all(node.path("state")).expect("state, which is on a tmpfs");
    let record = node
        .path("root/sandboxes")
        .join(&life.sandbox)
        .join("record.json");
    let mut text: Value =
        serde_json::from_slice(&fs::read(&record).expect("record")).expect("json");
    text["boot"] = "another".into();
    fs::write(&record, text.to_string()).expect("record");
    node.start(None).await;
    let state = life.sandbox_state(&node).await;
    assert_eq!(state, Some(v1::PodSandboxState::SandboxNotready as i32));
    let (status, _) = node.container(&life.container).await.expect("status");
    assert_eq!((status.exit_code, &status.reason[..]), (255, "Unknown"));
    assert!(status.finished_at > 0);
    // It keeps its name until it is removed, and its address until it is stopped.
    let mut again = life.clone();
    assert!(again.ask(&node, Verb::Run).await.is_err());
    removed(&node, life).await;
    left::nothing(&node, "the end").await;
    let again = made(&node, again).await;
    removed(&node, again).await;
}

/// Running pods continue: the copy of the record is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_damaged() {
    for of in ["containers", "sandboxes"] {
        let mut node = Node::new().await;
        node.start(None).await;
        let witness = Witness::new(&mut node).await;
        let life = made(&node, Life::new(&node, "damaged", false)).await;
        let (_, pid) = node.container(&life.container).await.expect("status");
        node.kill();
        let id = match of {
            "containers" => &life.container,
            _ => &life.sandbox,
        };
        let record = node.path("root").join(of).join(id).join("record.json");
        fs::write(&record, "{").expect("record");
        node.start(None).await;
        witness.is_well(&mut node, of).await;
        let aside = node.path("root/broken").join(format!("{id}.json"));
        let aside = fs::read_to_string(&aside).expect("the damaged record is set aside");
        assert_eq!(aside, "{");
        let (status, now) = node.container(&life.container).await.expect("status");
        assert_eq!(
            (now, status.state),
            (pid, v1::ContainerState::ContainerRunning as i32),
            "{of}"
        );
        fs::remove_dir_all(node.path("root/broken")).expect("cleanup");
        removed(&node, life).await;
        left::nothing_but(&node, &witness, of).await;
        witness.end(&node).await;
        left::nothing(&node, of).await;
    }
}

/// Pods that do not run are removed, and their addresses released.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_damaged_and_nothing_of_it_runs() {
    for of in ["containers", "sandboxes"] {
        let mut node = Node::new().await;
        node.start(None).await;
        let mut life = Life::new(&node, "damaged", false);
        // A real power failure would remove the iptables rules; this simulated one does not.
        life.pod.port_mappings.clear();
        let life = made(&node, life).await;
        node.kill();
        left::power_off(&node);
        for dir in ["state", "root/cni"] {
            fs::remove_dir_all(node.path(dir)).expect("unsynced directory");
        }
        let id = match of {
            "containers" => &life.container,
            _ => &life.sandbox,
        };
        let dir = node.path("root").join(of).join(id);
        fs::write(dir.join("record.json"), "{").expect("record");
        let record = node
            .path("root/sandboxes")
            .join(&life.sandbox)
            .join("record.json");
        if of == "sandboxes" {
            fs::remove_file(dir.join("made.json")).expect("synced file");
        } else {
            let mut text: Value =
                serde_json::from_slice(&fs::read(&record).expect("record")).expect("json");
            text["boot"] = "another".into();
            fs::write(&record, text.to_string()).expect("record");
        }
        node.start(None).await;
        let aside = node.path("root/broken").join(format!("{id}.json"));
        let aside = fs::read_to_string(&aside).expect("the damaged record is set aside");
        assert_eq!(aside, "{");
        fs::remove_dir_all(node.path("root/broken")).expect("cleanup");
        assert!(node.container(&life.container).await.is_none(), "{of}");
        if of == "containers" {
            removed(&node, life).await;
        }
        left::nothing(&node, of).await;
    }
}
