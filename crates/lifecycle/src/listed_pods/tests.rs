//! Pods from the lists of a runtime, and what replaces them. Their sentences are in `diagnosis/tests/before_criscope.txt`.

use std::sync::Arc;

use super::*;
use crate::Stories;
use crate::stories::tests::stories;
use crate::tests::scenario::read_calls;
use crate::tests::script::{ScriptedPod, at, pod};
use crate::view::PodState;

fn sandbox(pod: &ScriptedPod, created: u64) -> ListedSandbox {
    ListedSandbox {
        id: pod.sandbox(),
        pod: Arc::clone(&pod.0),
        is_ready: true,
        created: at(created),
    }
}

fn container(pod: &ScriptedPod, name: &str, attempt: u32, state: ListedState) -> ListedContainer {
    ListedContainer {
        id: format!("{}/{name}/{attempt}", pod.sandbox()).into(),
        sandbox_id: pod.sandbox(),
        container: Arc::new(ContainerIdentity {
            name: name.into(),
            attempt,
        }),
        state,
        created: at(u64::from(attempt)),
    }
}

fn lists(sandboxes: Vec<ListedSandbox>, containers: Vec<ListedContainer>) -> RuntimeLists {
    RuntimeLists {
        sandboxes,
        containers,
    }
}

fn set(stories: &Stories, lists: RuntimeLists) -> Vec<Arc<str>> {
    stories.set_listed(&"main".into(), lists)
}

#[test]
fn the_newest_sandbox_and_the_newest_runs_count() {
    let (old, new) = (pod("web"), pod("web").attempt(1));
    let containers = vec![
        container(&old, "app", 9, ListedState::Exited),
        container(&new, "app", 0, ListedState::Exited),
        container(&new, "app", 1, ListedState::Running),
    ];
    let sandboxes = vec![sandbox(&new, 2000), sandbox(&old, 1000)];
    let stories = stories([]);
    assert_eq!(set(&stories, lists(sandboxes, containers)), []);
    let story = stories.pod_story("shop", "web", None, &[]).expect("listed");
    assert_eq!((&*story.cause, story.episodes.len()), ("start_not_seen", 0));
    let listed = story.listed.expect("listed");
    assert_eq!(*listed.sandbox_id, *new.sandbox());
    assert_eq!(listed.created_unix_us, at(2000));
    let runs: Vec<_> = { listed.containers.iter() }
        .map(|run| (&*run.name, run.restarts, &*run.state))
        .collect();
    assert_eq!(runs, [("app", 1, "running")]);
    let pods = stories.pods(&[]).pods;
    let [entry] = &pods[..] else {
        panic!("one pod: {pods:?}")
    };
    assert_eq!(entry.reason, story.headline);
    assert_eq!((entry.restarts, entry.episodes), (1, 0));
    assert_eq!((entry.state, entry.began_unix_us), (PodState::Ok, at(2000)));
}

/// The lists come once a minute; an exit is asked for once.
#[test]
fn the_status_of_a_container_that_has_ended_is_wanted_until_it_is_known() {
    let pod = pod("web");
    let listed = || {
        let containers = vec![
            container(&pod, "app", 3, ListedState::Exited),
            container(&pod, "init", 0, ListedState::Exited),
        ];
        lists(vec![sandbox(&pod, 0)], containers)
    };
    let stories = stories([]);
    let both = [
        "sandbox-uid-web-0/init/0".into(),
        "sandbox-uid-web-0/app/3".into(),
    ];
    assert_eq!(set(&stories, listed()), both);
    let ended = |code| ContainerState {
        started_at: 0,
        exit: Some(ContainerExit {
            at: 1_750_000_000_000_000_000,
            code,
            reason: ExitReason::Error,
        }),
    };
    stories.note_listed_status(&both[1], ended(1));
    assert_eq!(set(&stories, listed()), [Arc::clone(&both[0])]);
    stories.note_listed_status(&both[0], ended(0));
    assert_eq!(set(&stories, listed()), []);
    assert_eq!(stories.pods(&[]).pods[0].state, PodState::Failed);
}

/// Nothing is asked or kept of a pod whose calls were seen.
#[test]
fn a_pod_with_a_story_is_not_kept() {
    let pod = pod("web");
    let listed = || {
        let containers = vec![container(&pod, "app", 0, ListedState::Exited)];
        lists(vec![sandbox(&pod, 0)], containers)
    };
    let stories = stories(read_calls("run 0 +900; up app 1s"));
    assert_eq!(set(&stories, listed()), []);
    assert_eq!(stories.store().listed.iter().count(), 0);
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    assert_eq!(story.listed, None);
    assert_eq!(stories.pods(&[]).pods.len(), 1);
}

#[test]
fn a_pod_that_the_runtime_lists_no_more_is_gone() {
    let stories = stories([]);
    set(&stories, lists(vec![sandbox(&pod("web"), 0)], Vec::new()));
    assert_eq!(stories.pods(&[]).pods.len(), 1);
    set(&stories, RuntimeLists::default());
    assert_eq!(stories.pods(&[]).pods.len(), 0);
    assert_eq!(stories.pod_story("shop", "web", None, &[]), None);
}

#[test]
fn a_newer_pod_of_the_name_of_one_with_a_story_is_told() {
    let other = pod("web").with_uid("other");
    let stories = stories(read_calls("run 0 +900; up app 1s; stop 60s +100"));
    set(&stories, lists(vec![sandbox(&other, 90_000)], Vec::new()));
    let told = |uid| {
        let story = stories.pod_story("shop", "web", uid, &[]);
        story.expect("known").cause
    };
    assert_eq!(told(None), "start_not_seen");
    assert_eq!(told(Some("other")), "start_not_seen");
    assert_ne!(told(Some("uid-web")), "start_not_seen");
    assert_eq!(stories.pods(&[]).pods.len(), 2);
}

#[test]
fn what_is_kept_is_bounded() {
    let many = (0..3000).map(|n| pod(&format!("web-{n}")));
    let sandboxes = many.map(|pod| sandbox(&pod, 0)).collect();
    let web = pod("web-0");
    let containers = (0..100).map(|n| container(&web, &format!("c{n}"), 0, ListedState::Exited));
    let stories = stories([]);
    let wanted = set(&stories, lists(sandboxes, containers.collect()));
    assert_eq!(stories.pods(&[]).pods.len(), MAX_LISTED_PODS);
    assert_eq!(wanted.len(), MAX_LISTED_CONTAINERS);
}
