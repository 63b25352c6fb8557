//! What a registry says beside its answers, in the log and in the story of the pod.

use axum::response::Response;

use crate::commands::printed;
use crate::harness::image::with_file;
use crate::harness::registry::status;
use crate::prelude::*;

/// A registry whose manifests come with this header.
async fn registry(header: &'static str, value: &'static str) -> (Registry, String) {
    let registry = Registry::start().await;
    let image = with_file(b"x");
    let name = registry.push("a", "1", &image);
    let manifest = String::from_utf8(image.manifest).expect("JSON");
    registry.hook(move |asked| {
        let is_manifest = asked.path.contains("/manifests/");
        is_manifest.then(|| {
            let mut answer: Response = status(200, &manifest);
            let value = value.parse().expect("a header");
            answer.headers_mut().insert(header, value);
            answer
        })
    });
    (registry, name)
}

async fn pull(kubelet: &Kubelet, pod: &Pod, name: &str) -> Result<(), Status> {
    let request = requests::pull_for(name, pod.config.clone());
    kubelet.images.clone().pull_image(request).await.map(drop)
}

/// The notes of the pulls of the pod `told`.
async fn notes(daemon: &Daemon) -> Vec<String> {
    let path = "/debug/pods/test/told?format=json";
    let (status, text) = daemon.program().get(path).await;
    let story: Value = serde_json::from_str(&text).unwrap_or_default();
    let episodes = story["episodes"].as_array().filter(|_| status == 200);
    let calls = episodes.into_iter().flatten().flat_map(|episode| {
        let calls = episode["calls"].as_array().cloned();
        calls.unwrap_or_default()
    });
    let notes = calls.flat_map(|call| call["remarks"].as_array().cloned().unwrap_or_default());
    notes
        .map(|note| note.as_str().expect("text").to_owned())
        .collect()
}

/// Waits for a note with these words everywhere where people look.
async fn assert_told(daemon: &Daemon, words: &str) {
    let found = until(words, || async {
        let notes = notes(daemon).await;
        notes.into_iter().find(|note| note.contains(words))
    });
    let note = found.await;
    let line = daemon.program().wait_event("image.remark").await;
    assert!(
        line.to_string()
            .contains(words.split('"').next().expect("a word")),
        "{line}"
    );
    let explained = printed(daemon.program(), &["explain", "test/told"]).await;
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(explained.contains(&note), "{explained}");
    let (_, page) = daemon.program().get("/debug/pods/test/told").await;
    let first = words.split_whitespace().next().expect("a word");
    assert!(page.contains(first), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_is_told_where_people_look() {
    let (daemon, kubelet) = node().await;
    let warning = "299 - \"this registry closes on Friday\"";
    let (_registry, name) = registry("warning", warning).await;
    let pod = kubelet.plain_pod("told").await;
    pull(&kubelet, &pod, &name).await.expect("PullImage");
    assert_told(&daemon, "warns: \"this registry closes on Friday\"").await;
    kubelet.end(&pod).await;
    kubelet.remove_image(&name).await;
    daemon.assert_clean();
}

/// A refusal in the registry's own words, as the caller gets it and as the first line tells it.
#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_refusal_are_in_the_error_and_in_the_first_line() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    registry.hook(|_| {
        let body = r#"{"errors":[{"code":"DENIED","message":"the team has no quota left"}]}"#;
        Some(status(403, body))
    });
    let pod = kubelet.plain_pod("told").await;
    let refused = pull(&kubelet, &pod, &registry.name("a:1")).await;
    let refused = refused.expect_err("refused");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let said = "DENIED: the team has no quota left";
    assert!(refused.message().contains(said), "{}", refused.message());
    let line = until("the first line", || async {
        let explained = printed(daemon.program(), &["explain", "test/told"]).await;
        let first = explained.lines().next()?.to_owned();
        first.contains("cannot pull").then_some(first)
    });
    let line = line.await;
    assert!(
        line.contains("denies access") && line.contains(said),
        "{line}"
    );
    daemon.end(&kubelet, [&pod]).await;
}

/// As Docker Hub tells it: in the metrics always, and to people while there is still something left.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_told_before_it_is_reached() {
    let (daemon, kubelet, pod) = node_with_pod("told").await;
    for (remaining, limit, is_low) in [("76;w=21600", 76.0, false), ("7;w=21600", 7.0, true)] {
        let (registry, name) = registry("RateLimit-Remaining", remaining).await;
        pull(&kubelet, &pod, &name).await.expect("PullImage");
        let metric = "criscope_runtime_registry_requests_remaining";
        let scrape = daemon.program().wait_scrape(metric, |scrape| {
            let told = scrape.metric(metric).with("registry", "other");
            told.sum() == limit
        });
        scrape.await;
        if is_low {
            let left = format!(
                "{} limits requests, and the limit is near: 7 requests left in 6 h",
                registry.address
            );
            assert_told(&daemon, &left).await;
        } else {
            assert!(notes(&daemon).await.is_empty());
        }
        kubelet.remove_image(&name).await;
    }
    daemon.end(&kubelet, [&pod]).await;
}
