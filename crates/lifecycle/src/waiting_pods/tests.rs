//! Pods without a call in lists and stories.

use std::time::Duration;

use super::*;
use crate::kubelet::waiting::PodVolumes;
use crate::node::NodeFact;
use crate::stories::tests::stories;
use crate::tests::scenario::read_calls;
use crate::tests::script::pod;

fn waiting(uid: &str, begun: &[&str]) -> WaitingPod {
    WaitingPod {
        uid: uid.into(),
        namespace: Some("shop".into()),
        since: UnixMicros::now() - Duration::from_secs(190),
        volumes: PodVolumes {
            ready: 1,
            begun: begun.iter().copied().map(Box::from).collect(),
        },
    }
}

#[test]
fn a_pod_is_listed_until_a_call_names_it() {
    let of_db = read_calls("pod db; run 0 +100; up db 110");
    let stories = stories(of_db);
    let pods = [waiting("uid-db", &[]), waiting("u1", &["data (csi)"])];
    stories.set_waiting(pods.to_vec());
    let list = stories.pods(&[]).pods;
    let [first, second] = &list[..] else {
        panic!("the pod with calls is listed once");
    };
    assert_eq!(
        (first.path(), first.state),
        ("shop/u1".to_owned(), PodState::Starting)
    );
    assert_eq!(second.path(), "shop/db");
    let wanted = "the kubelet has known the pod for 3m 10s and has not asked for a sandbox: \
                  volume data (csi) is not mounted (1 other is ready)";
    assert_eq!(first.reason, wanted);
    let story = stories.pod_story("shop", "u1", None, &[]).expect("known");
    assert_eq!(
        (&*story.headline, &*story.cause),
        (wanted, WAITS_BEFORE_FIRST_CALL)
    );
    let notes = stories.about_unknown();
    assert_eq!(
        notes[0],
        format!("it may be pod shop/u1, whose name is not known here yet: {wanted}")
    );
    assert!(notes.len() <= 3, "{notes:?}");
    assert_eq!(
        stories
            .pod_story("shop", "db", None, &[])
            .expect("known")
            .episodes
            .len(),
        1
    );
    assert_eq!(stories.pod_story("other", "u1", None, &[]), None);
}

#[test]
fn a_span_of_the_kubelet_names_the_pod() {
    let stories = stories([]);
    stories.store().note_sync(pod("web").syncs(0, 123_000));
    stories.set_waiting(vec![waiting("uid-web", &[])]);
    let list = stories.pods(&[]).pods;
    assert_eq!(list[0].path(), "shop/web");
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    let next = story.next.expect("a step");
    assert!(
        next.starts_with("`kubectl describe pod -n shop web`, `journalctl"),
        "{next}"
    );
    // What the kubelet itself says is better.
    let text = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";
    stories
        .store()
        .note_sync(pod("web").sync_fails(124_000, 123_000, text));
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    assert_eq!(story.cause, "kubelet_sync_failed");
}

#[test]
fn a_new_pod_of_a_known_name_waits() {
    let stories = stories(read_calls(
        "pod web/old; run 0 +100; up app 110; stop 60s +100",
    ));
    stories.store().note_sync(pod("web").syncs(0, 123_000));
    stories.set_waiting(vec![waiting("uid-web", &[])]);
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    assert_eq!(story.cause, WAITS_BEFORE_FIRST_CALL);
}

#[test]
fn what_holds_all_pods_comes_first() {
    let stories = stories([]);
    let kind = NodeFactKind::NotReady {
        backend: "main".to_owned(),
        condition: "NetworkReady".to_owned(),
    };
    let since = UnixMicros::now() - Duration::from_secs(180);
    stories
        .store()
        .note_fact(NodeFact::new(kind, since, "cni config uninitialized"));
    stories.set_waiting(vec![waiting("u1", &[])]);
    let reason = &stories.pods(&[]).pods[0].reason;
    let wanted = "the runtime main has reported NetworkReady false for 3 min: cni config uninitialized; the kubelet has known the pod for ";
    assert!(reason.starts_with(wanted), "{reason}");
}

fn active(names: &[&str]) -> ActivePods {
    let names = names
        .iter()
        .map(|name| ("shop".to_owned(), (*name).to_owned()));
    names.collect()
}

#[test]
fn the_kubelet_tells_whether_a_pod_is_one_that_waits() {
    let stories = stories(read_calls("pod db; run 0 +100; up db 110"));
    stories.set_waiting(vec![waiting("u1", &["data (csi)"])]);
    let about = |name: &str, names: &[&str]| {
        let notes = stories.about_unknown_pod(("shop", name), &active(names));
        notes[0].clone()
    };
    let waits = "the kubelet has known the pod for 3m 10s and has not asked for a sandbox: \
                 volume data (csi) is not mounted (1 other is ready)";
    assert_eq!(about("web", &["db", "web"]), waits);
    assert_eq!(
        about("wbe", &["db", "web"]),
        "the kubelet does not have it among its active pods: it was refused at admission, has ended, is on another node or has another name"
    );
    // One of the two may run since before the records.
    let unsure = format!("it may be pod shop/u1, whose name is not known here yet: {waits}");
    assert_eq!(about("web", &["old", "web"]), unsure);
    assert_eq!(about("db", &["db", "web"]), unsure);
    // A kubelet that has just started.
    assert_eq!(about("web", &[]), unsure);
    stories.set_waiting(vec![waiting("u1", &["data (csi)"]), waiting("u2", &[])]);
    let note = about("web", &["db", "other", "web"]);
    assert!(
        note.starts_with(
            "it is one of 2 pods that wait; of the newest: the kubelet has known the pod for 3m 10s"
        ),
        "{note}"
    );
    stories.set_waiting(Vec::new());
    let note = about("web", &["web"]);
    assert!(note.starts_with("no kubelet has connected"), "{note}");
}
