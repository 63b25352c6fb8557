//! Facts that a process leaves to the next one, other than the calls of episodes.

use super::handover::{in_flight, lines, outcomes, until};
use super::*;
use criscope_cri::call::Client;
use criscope_cri::call::Peer;

/// A command in the container of a pod.
fn command(name: &str, timeout: i64, exit_code: i32, client: Client) -> Call {
    let mut exec = Call::example(Method::ExecSync);
    exec.peer = Arc::new(Peer {
        client,
        pid: None,
        comm: None,
    });
    let subject = call(Method::ExecSync, name, 0).subject.get().cloned();
    let subject = Subject {
        timeout: Some(timeout),
        ..subject.expect("set")
    };
    let answer = ResponseDetails {
        exit_code: Some(exit_code),
        ..ResponseDetails::default()
    };
    exec.subject.set(subject).expect("unset");
    exec.response.set(answer).expect("unset");
    exec
}

#[tokio::test]
async fn probes_and_commands_of_others_are_known_again() {
    let dir = tempfile::tempdir().expect("dir");
    let mut first = aggregator(Some(dir.path()));
    first.start("web");
    for _ in 0..3 {
        first.end(&command("web", 1, 7, Client::Kubelet), Ending::Ok);
    }
    first.end(&command("web", 0, 0, Client::Other), Ending::Ok);
    first.finish().await;
    let mut second = aggregator(Some(dir.path()));
    second.finish().await;
    for running in [&first, &second] {
        let story = running.stories.pod_story("shop", "web", None, &[]);
        let story = story.expect("a story");
        let probes = story.probes.iter().map(|probe| probe.failed_in_a_row);
        assert_eq!(probes.collect::<Vec<_>>(), [3], "{}", story.headline);
        let store = running.stories.store();
        let interventions = store.episodes().map(|episode| episode.interventions.len());
        assert_eq!(interventions.sum::<usize>(), 1);
    }
}

#[tokio::test]
async fn a_hook_in_flight_is_lost_with_criscope() {
    let dir = tempfile::tempdir().expect("dir");
    let first = aggregator(Some(dir.path()));
    first.start("web");
    let hook = Arc::new(command("web", 0, 0, Client::Kubelet));
    let probe = Arc::new(command("web", 1, 0, Client::Kubelet));
    in_flight(&first, &[&hook, &probe]);
    until(|| lines(dir.path(), "running") > 0).await;
    first.task.abort();
    let mut second = aggregator(Some(dir.path()));
    let is_hook = |call: &String| call.starts_with("ExecSync ") && call != "ExecSync in_flight";
    until(|| outcomes(&second, "web").iter().any(is_hook)).await;
    let hooks = outcomes(&second, "web").into_iter().filter(is_hook);
    assert_eq!(hooks.count(), 1, "probes are no part of a story");
    second.finish().await;
}
