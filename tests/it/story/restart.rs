//! Stories survive the end of the program, however it ends, and a disk that does not take them harms no call.

use super::pod::{Pod, runtime};
use super::{assert_adds_up, assert_one_a_minute, config, proxy, summary};
use crate::prelude::*;

/// Waits until the journal has so many lines.
async fn wait_lines(state: &Path, n: usize) {
    let file = state.join("journal.jsonl");
    until("lines of the journal", || async {
        let text = fs::read_to_string(&file).ok()?;
        (text.lines().filter(|line| !line.is_empty()).count() >= n).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_outlives_a_kill() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let first = proxy(&fake, &state).await;
    let mut pod = Pod::new("web");
    {
        let client = first.client().await;
        pod.run(&client).await;
        assert_eq!(pod.pull(&client).await, 0);
    }
    wait_lines(state.path(), 2).await;
    first.signal(Signal::SIGKILL);
    first.ended().await;

    // A kill in the middle of a write leaves half a line.
    let file = state.path().join("journal.jsonl");
    let mut text = fs::read(&file).expect("journal");
    text.extend_from_slice(b"{\"call\":{\"seq\":3,\"meth");
    fs::write(&file, text).expect("write");

    let second = proxy(&fake, &state).await;
    pod.create_and_start(&second.client().await).await;
    let line = summary(&second, "pod.start.summary", "web").await;
    assert_eq!(
        (&line["calls"], &line["criscope.outcome"]),
        (&4.into(), &"ok".into()),
        "{line}"
    );
    assert_eq!(line["criscope.image.pulled"], true);
    assert_adds_up(&line);
    let scrape = second.scrape().await;
    let lost = scrape.metric("criscope_telemetry_dropped_total");
    assert_eq!(lost.with("reason", "journal_damaged").sum(), 1.0);
    wait_lines(state.path(), 6).await;
    second.signal(Signal::SIGKILL);
    second.ended().await;

    // What was told is not told again: only the new pod is.
    let third = proxy(&fake, &state).await;
    let mut other = Pod::new("other");
    other.start(&third.client().await).await;
    summary(&third, "pod.start.summary", "other").await;
    let scrape = third.scrape().await;
    let starts = scrape.metric("criscope_pod_start_duration_seconds_count");
    assert_eq!(starts.sum(), 1.0);
    assert_eq!(
        scrape
            .metric("criscope_story_episodes")
            .with("kind", "start")
            .sum(),
        2.0
    );
    let lines = third.stop().await;
    assert!(
        !lines
            .iter()
            .any(|l| l.contains("summary") && l.contains("uid-web"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_cannot_be_written_harms_no_call() {
    let (fake, dir) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let file = dir.path().join("taken");
    fs::write(&file, "a file, no directory").expect("write");
    let start = Start::new(crate::CRISCOPE).config(&config(&file));
    let began = Instant::now();
    let proxy = start.upstream(fake.path()).ready().await;
    let mut pod = Pod::new("web");
    pod.start(&proxy.client().await).await;
    summary(&proxy, "pod.start.summary", "web").await;
    let waiting = |scrape: &Scrape| {
        let waiting = scrape.metric("criscope_story_journal_waiting_lines");
        // Four calls, and that the start is over.
        waiting.sum() == 5.0
    };
    proxy
        .wait_scrape("lines that wait are counted", waiting)
        .await;
    let complaints = proxy.stop().await;
    let complaints = complaints
        .iter()
        .filter(|l| l.contains("cannot be written"));
    // The file of usual durations is in the same directory, and is written at the end.
    let (usual, journal): (Vec<_>, Vec<_>) = complaints.partition(|l| l.contains("story.usual"));
    assert_one_a_minute(journal.len(), began);
    assert_one_a_minute(usual.len(), began);
}
