//! The story of a pod, told by the real program from the calls of a caller.

mod full_disk;
mod kubelet;
mod loops;
mod pod;
mod restart;
mod restored;
mod stress;

use criscope::call::episode::Ids;

use self::pod::{Pod, runtime};
use crate::prelude::*;

/// Silence after which an episode is over; short, so that no test waits for long.
const QUIET: &str = "500ms";

/// The configuration, with this directory for what survives.
fn config(state: &Path) -> String {
    config_with(QUIET, state)
}

/// The same, with another silence.
fn config_with(quiet: &str, state: &Path) -> String {
    format!(
        "[story]\nquiet = \"{quiet}\"\nstate_dir = \"{}\"\n",
        state.display()
    )
}

async fn proxy(fake: &Fake, state: &TempDir) -> Proxy {
    let start = Start::new(crate::CRISCOPE).config(&config(state.path()));
    start.upstream(fake.path()).ready().await
}

/// criscope in front of a runtime, and a caller.
async fn with_runtime() -> (Fake, TempDir, Proxy, Client) {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let proxy = proxy(&fake, &state).await;
    let client = proxy.client().await;
    (fake, state, proxy, client)
}

/// The summary line of an episode of this pod.
async fn summary(proxy: &Proxy, event: &str, pod: &str) -> Value {
    let matches = |line: &Value| line["event"] == event && line["k8s.pod.name"] == pod;
    proxy.wait_line(&format!("{event} of {pod}"), matches).await
}

/// One complaint, and another for each minute that it went on.
fn assert_one_a_minute(complaints: usize, since: Instant) {
    let minutes = since.elapsed().as_secs() as usize / 60;
    assert!((1..=1 + minutes).contains(&complaints), "{complaints}");
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_default()
}

/// The parts of a start in its line, which are its whole.
fn assert_adds_up(line: &Value) {
    let parts = [
        "sandbox_ms",
        "restore_ms",
        "network_ms",
        "image_pull_ms",
        "container_create_ms",
        "container_start_ms",
        "hook_ms",
        "checkpoint_ms",
        "container_stop_ms",
        "sandbox_stop_ms",
        "container_remove_ms",
        "sandbox_remove_ms",
        "outside_cri_ms",
    ];
    let sum: f64 = parts.iter().map(|part| number(line, part)).sum();
    let whole = number(line, "duration_ms");
    assert!(whole > 0.0 && (sum - whole).abs() < 1e-6, "{sum} {line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_and_goes() {
    let (_fake, _state, proxy, client) = with_runtime().await;
    let mut pod = Pod::new("web");
    pod.start(&client).await;
    let line = summary(&proxy, "pod.start.summary", "web").await;
    assert_eq!(line["criscope.outcome"], "ok", "{line}");
    assert_eq!(line["criscope.image.pulled"], true);
    assert_eq!((&line["calls"], &line["failures"]), (&4.into(), &0.into()));
    let trace = Ids::start("uid-web", 0).trace_id.to_string();
    assert_eq!(line["trace_id"], trace);
    assert_adds_up(&line);
    let scrape = proxy.scrape().await;
    let starts = scrape.metric("criscope_pod_start_duration_seconds_count");
    let starts = starts.with("outcome", "ok").with("image_pull", "some");
    assert_eq!(starts.with("runtime_handler", "default").sum(), 1.0);
    assert_eq!(scrape.metric("criscope_pod_starts_open").sum(), 0.0);

    // A look at the container tells how it ended, once.
    pod.status(&client).await;
    pod.status(&client).await;
    proxy
        .wait_scrape("the end of the container", |scrape| {
            let exits = scrape.metric("criscope_container_exits_total");
            exits.with("reason", "error").sum() == 1.0
        })
        .await;
    pod.again(&client).await;
    let line = summary(&proxy, "pod.restart.summary", "web").await;
    assert_eq!(
        (
            &line["k8s.container.name"],
            &line["k8s.container.restart_count"]
        ),
        (&"app".into(), &1.into())
    );
    pod.stop(&client).await;
    let line = summary(&proxy, "pod.stop.summary", "web").await;
    assert_adds_up(&line);
    let scrape = proxy.scrape().await;
    assert_eq!(
        scrape.metric("criscope_container_restarts_total").sum(),
        1.0
    );
    let exits = scrape.metric("criscope_container_exits_total");
    assert_eq!(exits.sum(), 1.0);
    let stops = scrape.metric("criscope_pod_stop_duration_seconds_count");
    assert_eq!(stops.with("outcome", "ok").sum(), 1.0);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_first_is_part_of_the_start() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    let tries = Arc::new(AtomicUsize::new(0));
    let answer = pod::answers();
    fake.on(move |head| {
        let pulls = head.uri.path().ends_with("/PullImage");
        if pulls && tries.fetch_add(1, Ordering::SeqCst) < 2 {
            return script::error(5, "failed to pull image: not found");
        }
        answer(head)
    });
    let proxy = proxy(&fake, &state).await;
    let client = proxy.client().await;
    let pod = Pod::new("web");
    assert_eq!(pod.pull(&client).await, 5);
    let failed = |n: f64| {
        move |scrape: &Scrape| {
            let failures = scrape.metric("criscope_pod_start_failures_total");
            failures.with("phase", "image_pull").sum() == n
        }
    };
    // At once, long before the start is over.
    proxy.wait_scrape("the first failure", failed(1.0)).await;
    assert_eq!(pod.pull(&client).await, 5);
    let mut pod = pod;
    pod.start(&client).await;
    let line = summary(&proxy, "pod.start.summary", "web").await;
    assert_eq!(
        (&line["criscope.retries"], &line["failures"]),
        (&2.into(), &2.into())
    );
    let headline = line["msg"].as_str().unwrap_or_default();
    assert!(
        headline
            .starts_with("could not pull docker.io/library/app:1: the registry has no such image"),
        "{line}"
    );
    assert_adds_up(&line);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pods_at_once_are_two_hundred_stories() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let proxy = proxy(&fake, &state).await;
    let client = Arc::new(proxy.client().await);
    let pods = (0..200).map(|n| {
        let client = Arc::clone(&client);
        tokio::spawn(async move {
            let mut pod = Pod::new(&format!("p{n}"));
            pod.start(&client).await;
            pod
        })
    });
    let mut up = Vec::new();
    for pod in pods.collect::<Vec<_>>() {
        up.push(pod.await.expect("started"));
    }
    let count = |event: &str| {
        let events = proxy.events();
        let lines = events.into_iter().filter(|line| line["event"] == event);
        lines.collect::<Vec<_>>()
    };
    let done = |metric: &'static str| move |scrape: &Scrape| scrape.metric(metric).sum() >= 200.0;
    let starts = "criscope_pod_start_duration_seconds_count";
    proxy.wait_scrape("all starts", done(starts)).await;
    for line in count("pod.start.summary") {
        assert_eq!(
            (&line["calls"], &line["criscope.outcome"]),
            (&4.into(), &"ok".into()),
            "{line}"
        );
        let uid = line["k8s.pod.uid"].as_str().expect("uid");
        assert_eq!(line["trace_id"], Ids::start(uid, 0).trace_id.to_string());
        assert_adds_up(&line);
    }
    let stops = up.into_iter().map(|mut pod| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { pod.stop(&client).await })
    });
    for stop in stops.collect::<Vec<_>>() {
        stop.await.expect("stopped");
    }
    let stops = "criscope_pod_stop_duration_seconds_count";
    let scrape = proxy.wait_scrape("all stops", done(stops)).await;
    assert_eq!(scrape.metric(starts).sum(), 200.0);
    assert_eq!(scrape.metric(stops).sum(), 200.0);
    let episodes = scrape.metric("criscope_story_episodes");
    // On a busy machine a removal after the stop may take a second, and is an episode of its own then.
    assert!(episodes.sum() >= 400.0, "{}", episodes.sum());
    let lost = scrape.metric("criscope_telemetry_dropped_total");
    assert_eq!(lost.with("signal", "story").sum(), 0.0);
}
