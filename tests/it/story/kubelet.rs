//! What a kubelet does itself, as its calls show it.

use criscope::units::rfc3339;
use criscope::units::times::UnixMicros;

use super::pod::{Pod, runtime};
use super::{number, proxy, summary, with_runtime};
use crate::prelude::*;

fn ago(time: Duration) -> UnixMicros {
    UnixMicros::now() - time
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_before_the_first_call_counts() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    // A journal that began an hour ago: criscope has watched since.
    let earlier = format!(
        r#"{{"call":{{"seq":1,"method":"RunPodSandbox","began":{},"elapsed":2,"client":"kubelet","pod":{{"namespace":"shop","name":"old","uid":"uid-old","attempt":0}},"sandbox":"s","ending":"ok","code":0}}}}"#,
        ago(Duration::from_secs(3600))
    );
    fs::write(state.path().join("journal.jsonl"), earlier + "\n").expect("journal");
    let proxy = proxy(&fake, &state).await;
    let client = proxy.client().await;
    let seen = rfc3339(ago(Duration::from_secs(41)));
    let mut pod = Pod::new("web").seen(&seen);
    pod.start(&client).await;
    let line = summary(&proxy, "pod.start.summary", "web").await;
    let before = number(&line, "before_cri_ms");
    assert!((40_000.0..70_000.0).contains(&before), "{line}");
    let said = line["msg"].as_str().unwrap_or_default();
    assert!(said.starts_with("the kubelet took 4"), "{said}");
    assert!(
        said.contains("before its first call: volumes, resource claims, "),
        "{said}"
    );
    let scrape = proxy.scrape().await;
    let sli = |le| {
        let buckets = scrape.metric("criscope_pod_start_sli_duration_seconds_bucket");
        buckets.with("le", le).sum()
    };
    assert_eq!((sli("30"), sli("120")), (0.0, 1.0));
    let total = scrape.metric("criscope_pod_start_total_duration_seconds_count");
    assert_eq!(total.sum(), 1.0);

    // A pod seen before it watched says nothing.
    let mut other = Pod::new("other").seen("2020-01-01T00:00:00Z");
    other.start(&client).await;
    let line = summary(&proxy, "pod.start.summary", "other").await;
    assert!(line["before_cri_ms"].is_null(), "{line}");
    let (_, page) = proxy.get("/debug/pods/shop/web?format=json").await;
    assert!(
        !page.contains("hunter2") && page.contains("before_cri_ms"),
        "{page}"
    );
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_exec_probe_kills() {
    let (_fake, _state, proxy, client) = with_runtime().await;
    let mut pod = Pod::new("web");
    pod.start(&client).await;
    for _ in 0..3 {
        for _ in 0..2 {
            pod.exec(&client, 1).await;
        }
        pod.kill(&client).await;
    }
    let page = until("the kills", || async {
        let (_, page) = proxy.get("/debug/pods/shop/web?format=json").await;
        page.contains("app is killed by its liveness or startup probe: 3 times in ")
            .then_some(page)
    })
    .await;
    assert!(
        page.contains("(exec, exit code 1, twice in a row)"),
        "{page}"
    );
    assert!(!page.contains("hunter2"), "{page}");
    // The hook of a new container is part of its restart.
    pod.kill(&client).await;
    pod.exec(&client, 0).await;
    until_true("the hook", async || {
        let (_, page) = proxy.get("/debug/pods/shop/web?format=json").await;
        page.contains("\"ExecSync\"")
    })
    .await;
    proxy.stop().await;
}
