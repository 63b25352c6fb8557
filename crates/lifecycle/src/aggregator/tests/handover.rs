//! A process that hands over its journal, and the next one.

use super::*;

/// Hands over, and waits until the next process may begin. The file is renamed as if it belonged to another process, which its lock does
/// not tell.
async fn hand_over(old: &Running, dir: &Path, number: u32) {
    old.handover.begun.cancel();
    old.handover.journaled.cancelled().await;
    let own = dir.join(format!("handover-{}", std::process::id()));
    std::fs::rename(own, dir.join(format!("handover-{number}"))).expect("written");
}

pub(super) fn in_flight(running: &Running, calls: &[&Arc<Call>]) {
    *running.in_flight.lock().expect("lock") = calls.iter().map(|call| Arc::clone(call)).collect();
}

pub(super) fn outcomes(running: &Running, name: &str) -> Vec<String> {
    let story = running.stories.pod_story("shop", name, None, &[]);
    let episodes = story.map(|story| story.episodes).unwrap_or_default();
    let calls = episodes.iter().flat_map(|episode| &episode.calls);
    let calls = calls.map(|call| format!("{} {}", call.method, call.outcome));
    calls.collect()
}

pub(super) fn lines(dir: &Path, kind: &str) -> usize {
    let journal = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap_or_default();
    let kind = format!("{{\"{kind}\"");
    journal
        .lines()
        .filter(|line| line.starts_with(&kind))
        .count()
}

/// Waits for a check that makes it true.
pub(super) async fn until(is_true: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < limit, "still not so");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_outcome(running: &Running, name: &str, outcome: &str) {
    let is_last = || {
        let story = running.stories.pod_story("shop", name, None, &[]);
        let calls = story.and_then(|story| story.episodes.into_iter().next_back());
        let last = calls.and_then(|episode| episode.calls.into_iter().next_back());
        last.is_some_and(|call| call.outcome == outcome)
    };
    until(is_last).await;
}

#[tokio::test]
async fn a_call_goes_on_in_the_old_process_and_ends_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut old = aggregator(Some(dir.path()));
    old.end(&call(Method::RunPodSandbox, "web", 0), Ending::Ok);
    let pull = Arc::new(call(Method::PullImage, "web", 0));
    in_flight(&old, &[&pull]);
    hand_over(&old, dir.path(), 1).await;
    assert_eq!(lines(dir.path(), "handed_over"), 1);

    let mut new = aggregator(Some(dir.path()));
    until_outcome(&new, "web", "in_flight").await;
    in_flight(&old, &[]);
    old.end(&pull, Ending::Ok);
    until_outcome(&new, "web", "ok").await;
    old.finish().await;
    until(|| new.stories.handed_over().is_empty()).await;
    assert_eq!(outcomes(&new, "web"), ["RunPodSandbox ok", "PullImage ok"]);
    assert_eq!(lines(dir.path(), "call"), 2);
    assert_eq!(old.heard(), [], "the next process reports it");
    let facts = new.stories.store().facts();
    assert!(facts.is_empty(), "criscope was not down: {facts:?}");
    new.finish().await;
}

#[tokio::test]
async fn calls_of_an_old_process_that_is_killed_are_lost_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = aggregator(Some(dir.path()));
    old.end(&call(Method::RunPodSandbox, "web", 0), Ending::Ok);
    let pull = Arc::new(call(Method::PullImage, "web", 0));
    in_flight(&old, &[&pull]);
    hand_over(&old, dir.path(), 1).await;
    let mut new = aggregator(Some(dir.path()));
    until_outcome(&new, "web", "in_flight").await;
    old.task.abort();
    until(|| new.stories.handed_over().is_empty()).await;
    let calls = outcomes(&new, "web");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_ne!(calls[1], "PullImage in_flight");
    new.finish().await;
    // The next process reads the same.
    let mut next = aggregator(Some(dir.path()));
    until_outcome(&next, "web", calls[1].trim_start_matches("PullImage ")).await;
    assert_eq!(outcomes(&next, "web"), calls);
    assert_eq!(lines(dir.path(), "call"), 2);
    next.finish().await;
}

#[tokio::test]
async fn the_next_process_may_hand_over_before_the_old_one_has_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut first = aggregator(Some(dir.path()));
    first.end(&call(Method::RunPodSandbox, "web", 0), Ending::Ok);
    let pull = Arc::new(call(Method::PullImage, "web", 0));
    in_flight(&first, &[&pull]);
    hand_over(&first, dir.path(), 1).await;
    let mut second = aggregator(Some(dir.path()));
    let stop = Arc::new(call(Method::StopPodSandbox, "old", 0));
    in_flight(&second, &[&stop]);
    hand_over(&second, dir.path(), 2).await;
    let mut third = aggregator(Some(dir.path()));
    until_outcome(&third, "old", "in_flight").await;
    first.end(&pull, Ending::Ok);
    first.finish().await;
    until_outcome(&third, "web", "ok").await;
    second.end(&stop, Ending::Ok);
    second.finish().await;
    until_outcome(&third, "old", "ok").await;
    assert_eq!(lines(dir.path(), "call"), 3);
    third.finish().await;
}
