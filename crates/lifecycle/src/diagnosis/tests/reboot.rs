//! A restart of the node.

use super::*;
use crate::node::{NodeFact, NodeFactKind};
use criscope_cri::subject::ExitReason;

/// criscope was last known to run at 100 s, the node booted at 160 s, and criscope began at 170 s.
fn restart() -> NodeFact {
    let booted = at(160_000);
    NodeFact {
        to: Some(at(170_000)),
        ..NodeFact::new(NodeFactKind::NodeRestarted { booted }, at(100_000), "")
    }
}

/// A pod that was up when the node went down.
fn before(web: &ScriptedPod) -> EpisodeStore {
    let mut store = store(chain([web.run(0, 500)], up(web, 600)));
    store.apply(web.create(("side", 0), 810, 50));
    store.apply(web.start(("side", 0), 870, 50));
    store.tick(at(100_000), &[]);
    store.note_fact(restart());
    store
}

/// What containerd says of a container whose end it did not see.
fn unseen(web: &ScriptedPod, name: &str) -> ExitRecord {
    let mut exit = web.exit((name, 0), 255, 1000, 172_000);
    exit.reason = ExitReason::Unknown;
    exit
}

fn replaced(store: &mut EpisodeStore, web: &ScriptedPod, from: u64) {
    store.apply(web.stop(from, 100));
    let new = web.attempt(1);
    store.apply(new.run(from + 200, 300));
    store.apply(new.create(("app", 1), from + 510, 20));
    store.apply(new.start(("app", 1), from + 540, 30));
}

fn of(store: &EpisodeStore, now: u64) -> String {
    pod_headline(&episodes(store), at(now))
}

const RESTARTED: &str = "the node was started again at 15:09:20 UTC";

#[test]
fn containers_that_ended_with_the_node() {
    let web = pod("web");
    let mut store = before(&web);
    store.note_exit(&web.0, Some("a"), unseen(&web, "app"));
    assert_eq!(
        of(&store, 175_000),
        format!("container app ended: {RESTARTED}, and nothing of the pod since")
    );
    store.note_exit(&web.0, Some("s"), unseen(&web, "side"));
    let said = format!("containers app, side ended: {RESTARTED}, and nothing of the pod since");
    assert_eq!(of(&store, 175_000), said);
    // A job is not made again.
    store.apply(web.stop(180_000, 10));
    assert_eq!(of(&store, 3_600_000), said);
}

#[test]
fn a_sandbox_that_ended_with_the_node_is_replaced() {
    let web = pod("web");
    for from in [176_000, 900_000] {
        let mut store = before(&web);
        for name in ["app", "side"] {
            store.note_exit(&web.0, Some(name), unseen(&web, name));
        }
        store.tick(at(from), &[]);
        replaced(&mut store, &web, from);
        store.tick(at(from + 60_000), &[]);
        assert_eq!(
            of(&store, from + 60_000),
            format!(
                "the sandbox was replaced (attempt 1): {RESTARTED}; container app up after 370 ms"
            )
        );
    }
}

/// systemd sends SIGTERM to what runs, and containerd may still see the end.
#[test]
fn containers_that_ended_while_the_node_went_down() {
    let web = pod("web");
    let told = |code, at_ms| {
        let mut store = before(&web);
        store.note_exit(&web.0, Some("a"), web.exit(("app", 0), code, 1000, at_ms));
        of(&store, 175_000)
    };
    let with_node = format!("container app ended: {RESTARTED}, and nothing of the pod since");
    assert_eq!(told(143, 101_000), with_node);
    assert_eq!(told(137, 99_000), with_node);
    // It may have crashed.
    for (code, at_ms) in [(1, 101_000), (137, 90_000)] {
        let said = told(code, at_ms);
        assert!(
            said.starts_with(&format!("container app ended with exit code {code}")),
            "{said}"
        );
    }
}

/// A container that was started after the boot.
#[test]
fn a_shim_that_dies_after_the_restart_is_not_blamed_on_it() {
    let web = pod("web");
    let mut store = before(&web);
    replaced(&mut store, &web, 176_000);
    store.tick(at(300_000), &[]);
    let mut exit = web.exit(("app", 1), 255, 176_570, 310_000);
    exit.reason = ExitReason::Unknown;
    store.note_exit(&web.attempt(1).0, Some("b"), exit);
    let said = of(&store, 311_000);
    assert!(said.contains("the runtime did not see how"), "{said}");
}

/// A crash loop of before, and one exit more: no crash.
#[test]
fn the_end_with_the_node_is_no_crash() {
    let web = pod("web");
    let mut store = before(&web);
    store.note_exit(&web.0, Some("a"), unseen(&web, "app"));
    replaced(&mut store, &web, 176_000);
    let exit = web.exit(("app", 1), 1, 176_570, 178_000);
    store.note_exit(&web.attempt(1).0, Some("b"), exit);
    let said = of(&store, 179_000);
    assert!(
        said.contains("exit code 1") && !said.contains("keeps"),
        "{said}"
    );
}

/// A directory of stories in `/run` is lost with the node. The kubelet asks how the containers of before ended.
#[test]
fn without_a_journal_the_times_of_containers_tell_of_the_restart() {
    let web = pod("web");
    let says = |began| {
        let mut store = store([]);
        store.set_boot(at(160_000));
        let mut exit = web.exit(("app", 2), 255, began, 172_000);
        exit.reason = ExitReason::Unknown;
        store.note_exit(&web.0, Some("a"), exit);
        let new = web.attempt(1);
        store.apply(new.run(176_000, 300));
        store.apply(new.create(("app", 3), 176_310, 20));
        store.apply(new.start(("app", 3), 176_340, 30));
        of(&store, 177_000)
    };
    assert_eq!(
        says(1000),
        format!("the sandbox was replaced (attempt 1): {RESTARTED}; container app up after 370 ms")
    );
    assert_eq!(
        says(165_000),
        "the sandbox was replaced (attempt 1): the one before was not usable; container app up after 370 ms"
    );
}

/// A kubelet that starts cleans up old sandboxes before it sees their pods, and the last one after it.
#[test]
fn after_several_restarts_of_the_node_the_last_one_is_told() {
    let web = pod("web");
    let (oldest, last, new) = (web.attempt(0), web.attempt(1), web.attempt(2));
    let mut store = store([]);
    store.set_boot(at(160_000));
    store.apply(oldest.stop(174_000, 1));
    let mut exit = web.exit(("app", 2), 255, 1000, 172_000);
    exit.reason = ExitReason::Unknown;
    store.note_exit(&last.0, Some("a"), exit);
    store.apply(last.stop(175_800, 80));
    store.apply(new.run(176_000, 300).seen_before(1000));
    store.apply(new.create(("app", 3), 176_310, 20));
    store.apply(new.start(("app", 3), 176_340, 30));
    assert_eq!(
        of(&store, 177_000),
        format!("the sandbox was replaced (attempt 2): {RESTARTED}; container app up after 370 ms")
    );
}

/// A journal may be older than the boot.
#[test]
fn a_start_before_the_boot_is_not_of_it() {
    let web = pod("web");
    let mut store = store([]);
    store.set_boot(at(500_000));
    store.note_exit(&web.0, Some("a"), web.exit(("app", 2), 255, 1000, 172_000));
    replaced(&mut store, &web, 176_000);
    let said = of(&store, 177_000);
    assert!(said.contains("was not usable"), "{said}");
}
