//! A restart of the node that only the times of containers show.

use super::*;

/// A call about a pod whose first sandbox was lost.
fn of_second_sandbox(method: Method) -> Call {
    let first = call(method, "web", 1);
    let mut subject = first.subject.get().expect("set").clone();
    let pod = subject.pod.as_deref().expect("a pod").clone();
    subject.pod = Some(Arc::new(PodIdentity { attempt: 1, ..pod }));
    subject.sandbox_id = Some("s-web-1".into());
    let second = Call::example(method);
    second.subject.set(subject).expect("unset");
    second
}

#[tokio::test]
async fn it_is_known_after_a_restart_of_ours() {
    let dir = tempfile::tempdir().expect("dir");
    let booted = SystemTime::from(NodeBoot::read().at);
    let mut first = aggregator(Some(dir.path()));
    let ended = booted - Duration::from_secs(10);
    first.end(&status("web", 0, ended, ExitReason::Unknown), Ending::Ok);
    for method in [
        Method::RunPodSandbox,
        Method::CreateContainer,
        Method::StartContainer,
    ] {
        first.end(&of_second_sandbox(method), Ending::Ok);
    }
    first.finish().await;
    let mut second = aggregator(Some(dir.path()));
    second.finish().await;
    for running in [first, second] {
        let story = running.stories.pod_story("shop", "web", None, &[]);
        let headline = story.expect("a story").headline;
        assert!(headline.contains("the node was restarted at"), "{headline}");
    }
}
