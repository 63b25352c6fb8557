//! The events of the life of pods and containers, and what a plugin learns when it connects.

use criscope_nri::api::*;
use criscope_nri::{PluginReply, PluginStub};
use prost::Message as _;

use super::{Plugin, configure, daemon, resize, socket};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_pod_arrives_once_and_in_order() {
    let (daemon, kubelet) = daemon().await;
    let mut plugin = Plugin::new(&daemon, "10", &[], |_, _| PluginReply::empty()).await;
    let pod = kubelet.plain_pod("life").await;
    let ran = kubelet.launch(&pod, idle("ran")).await;
    kubelet.update(&ran, Default::default()).await;
    resize(&kubelet, &pod).await.expect("resized");
    let never = kubelet.try_create(&pod, idle("never")).await.expect("made");
    kubelet.stop(&ran, 5).await;
    kubelet.remove(&ran).await;
    kubelet.remove(&never).await;
    kubelet.end(&pod).await;
    for (method, container) in [
        ("RunPodSandbox", ""),
        ("CreateContainer", &*ran),
        ("ValidateContainerAdjustment", &*ran),
        ("PostCreateContainer", &ran),
        ("StartContainer", &ran),
        ("PostStartContainer", &ran),
        ("UpdateContainer", &ran),
        ("PostUpdateContainer", &ran),
        ("UpdatePodSandbox", ""),
        ("PostUpdatePodSandbox", ""),
        ("CreateContainer", &never),
        ("ValidateContainerAdjustment", &never),
        ("PostCreateContainer", &never),
        ("StopContainer", &ran),
        ("RemoveContainer", &ran),
        ("StopContainer", &never),
        ("RemoveContainer", &never),
        ("StopPodSandbox", ""),
        ("RemovePodSandbox", ""),
    ] {
        let told = plugin.next().await;
        assert_eq!((&*told.0, &*told.1), (method, &*pod.id));
        assert_eq!(told.2, container, "{method}");
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_connects_learns_what_exists_also_after_a_restart() {
    let (mut daemon, mut kubelet) = daemon().await;
    let pod = kubelet.plain_pod("there").await;
    kubelet.launch(&pod, idle("main")).await;
    for _ in 0..2 {
        let seen = Arc::new(Mutex::new(None));
        let note = Arc::clone(&seen);
        let serve = move |method: &str, payload: Bytes| {
            if method == "Synchronize" {
                let request = SynchronizeRequest::decode(payload).expect("a request");
                *note.lock().expect("a lock") = Some(request);
            }
            PluginReply::empty()
        };
        let plugin = Plugin::new(&daemon, "10", &[], serve).await;
        let request = seen.lock().expect("a lock").take().expect("synchronized");
        let [one] = &request.pods[..] else {
            panic!("{} pods", request.pods.len());
        };
        assert_eq!((&*one.id, &*one.name), (&*pod.id, "there"));
        assert!(!one.ips.is_empty());
        let [container] = &request.containers[..] else {
            panic!("{} containers", request.containers.len());
        };
        assert_eq!(container.name, "main");
        assert!(container.state() == ContainerState::ContainerRunning);
        assert!(container.pid > 0 && container.args.len() == 3);
        assert!(container.mounts.iter().any(|m| m.destination == "/proc"));
        daemon.kill();
        plugin.end.closed().await;
        kubelet = daemon.serve().await;
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_plugins_are_started_and_none_outlives_the_daemon() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    configure(&mut daemon, "plugin_registration_timeout = \"60s\"");
    let plugins = daemon.root().join("plugins");
    fs::create_dir_all(&plugins).expect("a directory");
    let pid = daemon.root().join("plugin.pid");
    // The daemon waits for its registration, and is killed meanwhile.
    let script = format!(
        "#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}\nexec sleep 1000\n",
        pid.display()
    );
    executable(&plugins.join("10-waits"), &script);
    let starting = daemon.spawn();
    let plugin = until("the plugin", || async { fs::read_to_string(&pid).ok() }).await;
    drop(starting);
    let process = Path::new("/proc").join(plugin.trim());
    until_true("its end", async || !process.exists()).await;
}

/// It is socat, which connects its socket with this process.
#[tokio::test(flavor = "multi_thread")]
async fn an_installed_plugin_adjusts_the_first_container() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    configure(&mut daemon, "plugin_registration_timeout = \"60s\"");
    let plugins = daemon.root().join("plugins");
    fs::create_dir_all(&plugins).expect("a directory");
    let path = daemon.root().join("relay.sock");
    let socat = program("socat", "socat");
    let script = format!(
        "#!/bin/sh\nexec {} UNIX-LISTEN:{} FD:3\n",
        socat.display(),
        path.display()
    );
    executable(&plugins.join("10-adds"), &script);
    let serve = |method: &str, _: Bytes| match method {
        "CreateContainer" => PluginReply::message(&CreateContainerResponse {
            adjust: Some(ContainerAdjustment {
                env: vec![KeyValue {
                    key: "ADDED".to_owned(),
                    value: "by an installed plugin".to_owned(),
                }],
                ..Default::default()
            }),
            ..Default::default()
        }),
        _ => PluginReply::empty(),
    };
    // It is synchronized before the first call is served.
    let registers = async {
        let connects = || async {
            let connected = PluginStub::connect(&path, "99", "ignored", &[], serve).await;
            connected.ok()
        };
        let (end, registered) = until("the socket of the plugin", connects).await;
        registered.expect("registers");
        end
    };
    let ((), end) = tokio::join!(daemon.start(), registers);
    let is_installed =
        |line: &Value| line["nri.plugin"] == "10-adds" && line["nri.installed"] == true;
    let program = daemon.program();
    program.wait_line("its name", is_installed).await;
    let scrape = program.scrape().await;
    assert_eq!(scrape.metric("criscope_runtime_nri_plugins").sum(), 1.0);
    let requests = scrape.metric("criscope_runtime_nri_requests_total");
    assert_eq!(requests.with("method", "Configure").sum(), 1.0);
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("first").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let script = "tr '\\0' '\\n' < /proc/1/environ | grep ADDED";
    assert_eq!(
        kubelet.says(&id, script).await,
        "ADDED=by an installed plugin"
    );
    kubelet.end(&pod).await;
    daemon.kill();
    end.closed().await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_there_is_no_socket() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    assert!(!socket(&daemon).exists());
}
