//! Plugins that refuse, hang or die.

use criscope::lifecycle::view::PodStory;
use criscope_nri::PluginReply;
use criscope_nri::api::Event;

use super::{Plugin, daemon, daemon_with, resize};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_can_refuse_a_pod_a_container_and_a_start() {
    let (daemon, kubelet) = daemon().await;
    let refuses = |refused: &'static str| {
        move |method: &str, _| match method == refused {
            true => PluginReply::Error(2, "not today".to_owned()),
            false => PluginReply::empty(),
        }
    };
    let plugin = Plugin::new(&daemon, "10", &[], refuses("RunPodSandbox")).await;
    let error = kubelet.try_run(kubelet.pod_config("refused"), "").await;
    let error = error.err().expect("refused");
    assert_eq!(error.code(), Code::Unknown);
    let text = "NRI plugin 10-test: RunPodSandbox: not today (code 2)";
    assert_eq!(error.message(), text);
    plugin.end.close();

    let pod = kubelet.plain_pod("refused").await;
    let plugin = Plugin::new(&daemon, "15", &[], refuses("UpdatePodSandbox")).await;
    let error = resize(&kubelet, &pod).await.expect_err("refused");
    assert!(error.message().contains("15-test"), "{error}");
    plugin.end.close();

    let plugin = Plugin::new(&daemon, "20", &[], refuses("CreateContainer")).await;
    let error = kubelet.try_create(&pod, idle("main")).await;
    assert!(error.expect_err("refused").message().contains("20-test"));
    plugin.end.close();

    let id = kubelet.try_create(&pod, idle("main")).await.expect("made");
    let _plugin = Plugin::new(&daemon, "30", &[], refuses("StartContainer")).await;
    let error = kubelet.start(&id).await.expect_err("refused");
    assert!(error.message().contains("30-test"), "{error}");
    assert_eq!(kubelet.ended(&id).await.reason, "StartError");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_on_without_a_plugin_that_hangs_or_dies() {
    let (daemon, kubelet) = daemon_with("plugin_request_timeout = \"1s\"").await;
    let hangs = |method: &str, _| match method {
        "Synchronize" => PluginReply::empty(),
        _ => PluginReply::Never,
    };
    let dies = |method: &str, _| match method {
        "Synchronize" => PluginReply::empty(),
        _ => PluginReply::Disconnect,
    };
    let hanging = Plugin::new(&daemon, "10", &[Event::RunPodSandbox], hangs).await;
    let dying = Plugin::new(&daemon, "20", &[Event::CreateContainer], dies).await;
    let pod = kubelet.plain_pod("alone").await;
    kubelet.launch(&pod, idle("main")).await;
    hanging.end.closed().await;
    dying.end.closed().await;
    let scrape = daemon
        .program()
        .wait_scrape("both are gone", |scrape| {
            scrape.metric("criscope_runtime_nri_plugins").sum() == 0.0
        })
        .await;
    for reason in ["timeout", "disconnected"] {
        let closed = "criscope_runtime_nri_plugins_closed_total";
        let closed = scrape.metric(closed).with("reason", reason);
        assert_eq!(closed.sum(), 1.0, "{reason}");
    }
    // It waited for the first one, whose name is in its story.
    let waited = until("the plugin in the story", || async {
        let (_, text) = daemon
            .program()
            .get("/debug/pods/test/alone?format=json")
            .await;
        let story: PodStory = serde_json::from_str(&text).ok()?;
        let mut calls = story.episodes.into_iter().flat_map(|it| it.calls);
        let run = calls.find(|call| call.method == "RunPodSandbox")?;
        let mut details = run.details.into_iter();
        details.find(|detail| detail.name == "the NRI plugin 10-test")
    })
    .await;
    assert!(waited.duration_ms >= 1000.0, "{}", waited.duration_ms);
    daemon.end(&kubelet, [&pod]).await;
}
