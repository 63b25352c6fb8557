//! Adjustments and updates take effect in the kernel.

use criscope::lifecycle::view::PodStory;
use criscope_nri::PluginReply;
use criscope_nri::api::*;

use super::{Plugin, adjusting, daemon};
use crate::prelude::*;

fn memory(bytes: i64) -> LinuxResources {
    LinuxResources {
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: bytes }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn update(id: &str, bytes: i64) -> ContainerUpdate {
    ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(LinuxContainerUpdate {
            resources: Some(memory(bytes)),
        }),
        ignore_failure: false,
    }
}

/// The memory limit in the bundle of a container, which the OCI runtime has applied.
fn limit_of(daemon: &Daemon, id: &str) -> i64 {
    let path = daemon.root().join("root/containers").join(id);
    let text = fs::read(path.join("config.json")).expect("a bundle");
    let spec: Value = serde_json::from_slice(&text).expect("json");
    let limit = &spec["linux"]["resources"]["memory"]["limit"];
    limit.as_i64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_plugins_adjust_is_what_the_container_has() {
    let (daemon, kubelet) = daemon().await;
    let shared = daemon.root().join("shared");
    fs::create_dir_all(&shared).expect("a directory");
    fs::write(shared.join("file"), "from the host").expect("a file");
    let hooked = daemon.root().join("hooked");
    let adjust = ContainerAdjustment {
        annotations: BTreeMap::from([("by".to_owned(), "plugin".to_owned())]),
        env: vec![
            KeyValue {
                key: "ADDED".to_owned(),
                value: "by a plugin".to_owned(),
            },
            KeyValue {
                key: "-REMOVED".to_owned(),
                value: String::new(),
            },
        ],
        mounts: vec![Mount {
            destination: "/mnt".to_owned(),
            r#type: "bind".to_owned(),
            source: shared.display().to_string(),
            options: vec!["bind".to_owned(), "ro".to_owned()],
        }],
        hooks: Some(Hooks {
            poststart: vec![Hook {
                path: "/bin/touch".to_owned(),
                args: vec!["touch".to_owned(), hooked.display().to_string()],
                ..Default::default()
            }],
            ..Default::default()
        }),
        rlimits: vec![PosixRlimit {
            r#type: "RLIMIT_NOFILE".to_owned(),
            hard: 77,
            soft: 77,
        }],
        linux: Some(LinuxContainerAdjustment {
            devices: vec![LinuxDevice {
                path: "/dev/always-zero".to_owned(),
                r#type: "c".to_owned(),
                major: 1,
                minor: 5,
                file_mode: Some(OptionalFileMode { value: 0o666 }),
                ..Default::default()
            }],
            resources: Some(memory(64 << 20)),
            oom_score_adj: Some(OptionalInt { value: 777 }),
            seccomp_policy: Some(LinuxSeccomp {
                default_action: "SCMP_ACT_ALLOW".to_owned(),
                syscalls: vec![LinuxSyscall {
                    names: vec!["mkdir".to_owned(), "mkdirat".to_owned()],
                    action: "SCMP_ACT_ERRNO".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let _plugin = adjusting(&daemon, "10", adjust).await;
    let pod = kubelet.plain_pod("adjusted").await;
    let mut config = idle("main");
    config.envs.push(v1::KeyValue {
        key: "REMOVED".to_owned(),
        value: "x".into(),
    });
    let id = kubelet.launch(&pod, config).await;
    for (script, expected) in [
        ("cat /mnt/file", "from the host"),
        (
            "tr '\\0' '\\n' < /proc/1/environ | grep ADDED",
            "ADDED=by a plugin",
        ),
        (
            "tr '\\0' '\\n' < /proc/1/environ | grep -c REMOVED || true",
            "0",
        ),
        ("head -c 3 /dev/always-zero | tr '\\0' x", "xxx"),
        (
            "grep 'open files' /proc/1/limits | tr -s ' ' | cut -d ' ' -f 4,5",
            "77 77",
        ),
        ("cat /proc/1/oom_score_adj", "777"),
        ("touch /mnt/new 2>/dev/null || echo read-only", "read-only"),
        ("mkdir /made 2>/dev/null || echo refused", "refused"),
    ] {
        assert_eq!(kubelet.says(&id, script).await, expected, "{script}");
    }
    assert!(hooked.exists(), "the hook ran");
    assert_eq!(limit_of(&daemon, &id), 64 << 20);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_replaced_and_cdi_devices_injected() {
    let (daemon, kubelet) = daemon().await;
    let cdi = daemon.root().join("cdi");
    fs::create_dir_all(&cdi).expect("a directory");
    let text = r#"{"cdiVersion": "0.5.0", "kind": "vendor.example/nic", "devices":
        [{"name": "a", "containerEdits": {"env": ["NIC=a"]}}]}"#;
    fs::write(cdi.join("nic.json"), text).expect("a file");
    let adjust = ContainerAdjustment {
        args: ["/bin/sh", "-c", "echo $NIC; exit 7"]
            .map(str::to_owned)
            .into(),
        cdi_devices: vec![CdiDevice {
            name: "vendor.example/nic=a".to_owned(),
        }],
        ..Default::default()
    };
    let _plugin = adjusting(&daemon, "10", adjust).await;
    let pod = kubelet.plain_pod("other").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    assert_eq!(kubelet.ended(&id).await.exit_code, 7);
    assert_eq!(kubelet.log(&id).await[0].1, "a");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_plugins_that_set_the_same_thing_fail_the_creation() {
    let (daemon, kubelet) = daemon().await;
    let sets = || ContainerAdjustment {
        env: vec![KeyValue {
            key: "X".to_owned(),
            value: "1".to_owned(),
        }],
        ..Default::default()
    };
    let _a = adjusting(&daemon, "10", sets()).await;
    let _b = adjusting(&daemon, "20", sets()).await;
    let pod = kubelet.plain_pod("conflict").await;
    let error = kubelet.try_create(&pod, idle("main")).await;
    let error = error.expect_err("a conflict");
    assert_eq!(error.code(), Code::Unknown);
    let text = "NRI plugins 20-test and 10-test both set environment variable X";
    assert_eq!(error.message(), text);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_containers_are_updated_and_evicted() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("others").await;
    let first = kubelet.launch(&pod, idle("first")).await;
    let of_first = first.clone();
    let serve = move |method: &str, _| match method {
        "CreateContainer" => PluginReply::message(&CreateContainerResponse {
            update: vec![update(&of_first, 96 << 20)],
            ..Default::default()
        }),
        "UpdateContainer" => PluginReply::message(&UpdateContainerResponse {
            update: vec![update(&of_first, 80 << 20)],
            ..Default::default()
        }),
        _ => PluginReply::empty(),
    };
    let events = [Event::CreateContainer, Event::UpdateContainer];
    let plugin = Plugin::new(&daemon, "10", &events, serve).await;
    let second = kubelet.launch(&pod, idle("second")).await;
    assert_eq!(
        limit_of(&daemon, &first),
        96 << 20,
        "in the answer to a creation"
    );
    // The plugin changes what the kubelet asks for.
    let asked = v1::LinuxContainerResources {
        memory_limit_in_bytes: 128 << 20,
        ..Default::default()
    };
    kubelet.update(&first, asked).await;
    assert_eq!(limit_of(&daemon, &first), 80 << 20, "on its way");
    let request = UpdateContainersRequest {
        update: vec![update(&second, 72 << 20), update("unknown", 1)],
        ..Default::default()
    };
    let answer = plugin.end.update_containers(&request).await.expect("done");
    assert!(answer.failed.is_empty());
    assert_eq!(limit_of(&daemon, &second), 72 << 20, "unsolicited");
    let request = UpdateContainersRequest {
        evict: vec![ContainerEviction {
            container_id: second.clone(),
            reason: "a test".to_owned(),
        }],
        ..Default::default()
    };
    plugin.end.update_containers(&request).await.expect("done");
    let status = kubelet.ended(&second).await;
    assert_eq!(status.exit_code, 137);
    assert_eq!(
        (status.reason.as_str(), status.message.as_str()),
        ("Evicted", "evicted by NRI plugin 10-test: a test")
    );
    let story = daemon.program();
    let evicted = until("the eviction in the story", || async {
        let story: PodStory =
            serde_json::from_value(story.json("/debug/pods/test/others").await).ok()?;
        let mut exits = story.episodes.into_iter().flat_map(|it| it.exits);
        exits.find_map(|exit| exit.evicted)
    });
    assert_eq!(evicted.await, "evicted by NRI plugin 10-test: a test");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_that_a_plugin_chooses_is_measured_and_removed() {
    let (daemon, kubelet) = daemon().await;
    let path = format!("/criscope-nri-{}", std::process::id());
    let adjust = ContainerAdjustment {
        linux: Some(LinuxContainerAdjustment {
            cgroups_path: path.clone(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let _plugin = adjusting(&daemon, "10", adjust).await;
    let pod = kubelet.plain_pod("elsewhere").await;
    let id = kubelet.launch(&pod, idle("elsewhere")).await;
    // Version 2, or the hierarchies of version 1.
    let is_there = || {
        let dirs = ["", "/memory", "/pids"].map(|of| format!("/sys/fs/cgroup{of}{path}"));
        dirs.iter().any(|dir| Path::new(dir).exists())
    };
    assert!(is_there());
    let stats = kubelet.stats(&id).await;
    let memory = stats.and_then(|stats| stats.memory?.usage_bytes);
    assert!(memory.is_some_and(|memory| memory.value > 0));
    kubelet.end(&pod).await;
    assert!(!is_there());
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_in_an_answer_does_not_wait_for_the_container_that_is_starting() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("crossing").await;
    let waiting = kubelet
        .try_create(&pod, idle("waiting"))
        .await
        .expect("made");
    // Its start waits for the plugin, which answers the creation of another one with an update of it.
    let of_waiting = waiting.clone();
    let serve = move |method: &str, _| {
        if method == "StartContainer" {
            std::thread::sleep(Duration::from_millis(300));
        }
        match method {
            "CreateContainer" => PluginReply::message(&CreateContainerResponse {
                update: vec![update(&of_waiting, 96 << 20)],
                ..Default::default()
            }),
            _ => PluginReply::empty(),
        }
    };
    let events = [Event::CreateContainer, Event::StartContainer];
    let _plugin = Plugin::new(&daemon, "10", &events, serve).await;
    let (started, made) = tokio::join!(
        kubelet.start(&waiting),
        kubelet.try_create(&pod, idle("other"))
    );
    started.expect("started");
    made.expect("made");
    until_true("the update", async || {
        limit_of(&daemon, &waiting) == 96 << 20
    })
    .await;
    daemon.end(&kubelet, [&pod]).await;
}
