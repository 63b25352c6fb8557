//! Unusual values in the configuration of an image: what can run runs, and what cannot is refused by CreateContainer, with the image,
//! the field and the value.

use criscope::lifecycle::view::PodStory;

use super::images::{pull, spec};
use crate::harness::image::{configured, layer};
use crate::prelude::*;
use crate::runtime::crun::node_with_crun;

/// A node with runc and crun, and a registry.
struct Node {
    daemon: Daemon,
    kubelet: Kubelet,
    registry: Registry,
}

impl Node {
    async fn start() -> Self {
        let (daemon, kubelet) = node_with_crun().await;
        Self {
            daemon,
            kubelet,
            registry: Registry::start().await,
        }
    }

    async fn pod(&self, name: &str, handler: &str) -> Pod {
        let config = self.kubelet.pod_config(name);
        self.kubelet.run_with(config, handler).await
    }

    /// Pulls an image with these settings. It has a file `/file` and links.
    async fn image(&self, tag: &str, run: &Value) -> String {
        let files = layer()
            .file("file", b"content")
            .dir("dir", 0o755)
            .link("to-dir", "dir")
            .link("to-file", "/file")
            .link("dangling", "/made/by/the/runtime")
            .link("round", "round")
            .link("descriptors", "/proc/self/fd")
            .end();
        let mut run = run.clone();
        run["Env"] = json!(["PATH=/bin"]);
        let image = configured(&run, &[busybox::layer(), files]);
        let name = self.registry.push("values", tag, &image);
        pull(&self.kubelet, &name, "test").await.expect("PullImage");
        name
    }

    async fn end(self, pods: Vec<Pod>) {
        for pod in &pods {
            self.kubelet.end(pod).await;
        }
        self.daemon.assert_clean();
    }
}

/// A container of this image.
fn from_image(mut config: v1::ContainerConfig, image: &str) -> v1::ContainerConfig {
    config.image = spec(image);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_can_be_stopped_whatever_its_image_calls_the_signal() {
    let node = Node::start().await;
    let pod = node.pod("signals", "").await;
    let script = "trap 'exit 37' 37; trap 'exit 3' QUIT; trap 'exit 15' TERM; echo ready; sleep 1000000 & wait";
    for (number, (signal, code, is_known)) in [
        ("SIGQUIT", 3, true),
        ("sigquit", 3, true),
        ("3", 3, true),
        ("rtmin+3", 37, true),
        ("SIGRTMIN+3", 37, true),
        (" SIGQUIT ", 3, true),
        ("9", 137, true),
        ("", 15, true),
        ("SIGFOO", 15, false),
        ("0", 15, false),
        ("99", 15, false),
        ("-9", 15, false),
        ("SIGRTMIN-3", 15, false),
    ]
    .into_iter()
    .enumerate()
    {
        let run = json!({"StopSignal": signal});
        let image = node.image(&format!("signal-{number}"), &run).await;
        let name = format!("c{number}");
        let id = node
            .kubelet
            .launch(&pod, from_image(shell(&name, script), &image))
            .await;
        node.kubelet.logged(&id, "ready").await;
        // With a signal that nothing handles, the grace period would end with SIGKILL.
        node.kubelet.stop(&id, 60).await;
        let status = node.kubelet.ended(&id).await;
        assert_eq!(status.exit_code, code, "{signal:?}");
        let remarks = remarks(&node.daemon, "signals", &name).await;
        if is_known {
            assert_eq!(remarks, [""; 0], "{signal}");
        } else {
            let [remark] = &remarks[..] else {
                panic!("{signal}: one remark, not {remarks:?}");
            };
            assert!(remark.contains("SIGTERM"), "{remark}");
        }
    }
    node.end(vec![pod]).await;
}

/// The warnings in the story of a container's creation.
async fn remarks(daemon: &Daemon, pod: &str, container: &str) -> Vec<String> {
    let path = format!("/debug/pods/test/{pod}?format=json");
    until("the creation in the story", || async {
        let (_, text) = daemon.program().get(&path).await;
        let story: PodStory = serde_json::from_str(&text).ok()?;
        let mut calls = story.episodes.into_iter().flat_map(|episode| episode.calls);
        let found = calls.find(|call| {
            call.method == "CreateContainer" && call.container.as_deref() == Some(container)
        });
        Some(found?.remarks)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_directory_is_judged_before_anything_runs() {
    let node = Node::start().await;
    let pods = vec![node.pod("runc", "").await, node.pod("crun", "crun").await];
    let volume = node.daemon.root().join("volume");
    fs::create_dir_all(volume.join("sub")).expect("a volume");
    fs::write(volume.join("file"), "").expect("a file");
    std::os::unix::fs::symlink("/proc/self/fd", volume.join("planted")).expect("a link");
    for (number, (directory, expected)) in [
        ("", Ok("/")),
        ("relative/x", Ok("/relative/x")),
        ("/missing", Ok("/missing")),
        ("/dir/../dir/.", Ok("/dir")),
        ("/to-dir", Ok("/dir")),
        ("/to-dir/x", Ok("/dir/x")),
        ("/dangling", Ok("/made/by/the/runtime")),
        ("/with space/é", Ok("/with space/é")),
        ("/proc", Ok("/proc")),
        ("/srv/sub", Ok("/srv/sub")),
        ("/file", Err("/file is not a directory")),
        ("/file/x", Err("/file is not a directory")),
        ("/to-file", Err("/file is not a directory")),
        ("/srv/file", Err("/srv/file is not a directory")),
        ("/round", Err("links")),
        ("/proc/self/fd/7", Err("/proc/self/fd")),
        ("/proc/self/fd/7/../../..", Err("/proc/self/fd")),
        ("/descriptors/8", Err("/proc/self/fd")),
        ("/proc/1/root", Err("/proc/1/root")),
        ("/dev/fd/7", Err("/dev/fd")),
        ("/srv/planted/7", Err("/proc/self/fd")),
    ]
    .into_iter()
    .enumerate()
    {
        let run = json!({"WorkingDir": directory});
        let image = node.image(&format!("dir-{number}"), &run).await;
        for pod in &pods {
            // By the image, and by the request.
            for (by, requested) in [("i", ""), ("r", directory)] {
                if by == "r" && directory.is_empty() {
                    continue;
                }
                // A relative one of the request is refused, as by OCI runtimes.
                let is_repeated = !requested.is_empty() && pod.id == pods[1].id;
                if requested.starts_with("relative") || is_repeated {
                    continue;
                }
                let name = format!("c{number}{by}");
                let mut config = from_image(shell(&name, "pwd -P"), &image);
                requested.clone_into(&mut config.working_dir);
                config.mounts.push(v1::Mount {
                    container_path: "/srv".to_owned(),
                    host_path: volume.display().to_string(),
                    ..Default::default()
                });
                match (node.kubelet.try_create(pod, config).await, expected) {
                    (Ok(id), Ok(place)) => {
                        node.kubelet.start(&id).await.expect(directory);
                        node.kubelet.ended(&id).await;
                        let log = node.kubelet.log(&id).await;
                        assert_eq!(log, [("stdout".to_owned(), place.to_owned())]);
                        node.kubelet.remove(&id).await;
                    }
                    (Err(error), Err(reason)) => {
                        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
                        let text = error.message();
                        let quoted = format!("working directory {directory:?}");
                        assert!(text.contains(reason) && text.contains(&quoted), "{text}");
                        assert_eq!(text.contains(&image), requested.is_empty(), "{text}");
                    }
                    (got, _) => panic!("{directory:?}: {got:?}, expected {expected:?}"),
                }
            }
        }
    }
    node.end(pods).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_odd_values_run_or_are_refused_with_the_image_the_field_and_the_value() {
    let node = Node::start().await;
    let pod = node.pod("odd", "").await;
    let cases = [
        (json!({"User": "plain:"}), Ok("1000 1000")),
        (json!({"User": ":2000"}), Ok("0 2000")),
        (json!({"User": ":extra"}), Ok("0 2000")),
        (json!({"User": "1000:"}), Ok("1000 1000")),
        (json!({"User": " plain "}), Ok("1000 1000")),
        (json!({"User": ":"}), Ok("0 0")),
        (json!({"User": null}), Ok("0 0")),
        (json!({"User": "ghost"}), Err(&["ghost", "passwd"][..])),
        (
            json!({"User": "plain:ghosts"}),
            Err(&["ghosts", "group file"]),
        ),
        (
            json!({"User": "a b"}),
            Err(&["\"a b\"", "neither an id nor a name"]),
        ),
        (
            json!({"User": "1000:1000:1000"}),
            Err(&["\"1000:1000:1000\""]),
        ),
        (json!({"User": "4294967296"}), Err(&["4294967296"])),
        (
            json!({"Volumes": {"": {}, "a": {}, "/a/": {}, "//a/./": null, "/b/../b": {}}}),
            Ok("0 0"),
        ),
        (json!({"Volumes": ["/c", "/c", ""]}), Ok("0 0")),
        (
            json!({"Volumes": {"/file": {}}}),
            Err(&["/file", "directory"]),
        ),
        (
            json!({"Volumes": {"/a/../proc": {}}}),
            Err(&["/a/../proc", "/proc"]),
        ),
        (
            json!({"ExposedPorts": {"80": {}, "tcp/80": null, "x": {}, "70000/tcp": {}, "": {}}}),
            Ok("0 0"),
        ),
        (json!({"ExposedPorts": ["80/tcp"]}), Ok("0 0")),
        (
            json!({"Labels": null, "Healthcheck": {"Test": "curl", "Interval": "no number"}, "Shell": "sh", "OnBuild": 7}),
            Ok("0 0"),
        ),
        (
            json!({"Healthcheck": [], "ArgsEscaped": "yes", "MacAddress": null}),
            Ok("0 0"),
        ),
    ];
    for (number, (run, expected)) in cases.iter().enumerate() {
        let image = node.image(&format!("odd-{number}"), run).await;
        let script = "echo $(id -u) $(id -g)";
        let mut config = from_image(shell(&format!("c{number}"), script), &image);
        security(&mut config).readonly_rootfs = false;
        match (node.kubelet.try_create(&pod, config).await, expected) {
            (Ok(id), Ok(ids)) => {
                node.kubelet.start(&id).await.expect("StartContainer");
                node.kubelet.ended(&id).await;
                let log = node.kubelet.log(&id).await;
                assert_eq!(log, [("stdout".to_owned(), (*ids).to_owned())], "{run}");
            }
            (Err(error), Err(texts)) => {
                let text = error.message();
                for expected in texts.iter().chain(&[&*image]) {
                    assert!(text.contains(expected), "{run}: {text}");
                }
            }
            (got, _) => panic!("{run}: {got:?}, expected {expected:?}"),
        }
    }
    // Of the environment and the command.
    for (number, (run, texts)) in [
        (
            json!({"Env": ["PATH=/bin", "A=b\u{0}c"]}),
            &["\"A\"", "zero byte"][..],
        ),
        (json!({"Entrypoint": ["", "sh"]}), &["no command"]),
    ]
    .iter()
    .enumerate()
    {
        let built = configured(run, &[busybox::layer()]);
        let name = node
            .registry
            .push("values", &format!("process-{number}"), &built);
        pull(&node.kubelet, &name, "test").await.expect("PullImage");
        let mut config = from_image(idle(&format!("p{number}")), &name);
        if run.get("Entrypoint").is_some() {
            config.command = Vec::new();
        }
        let error = node.kubelet.try_create(&pod, config).await;
        let error = error.expect_err("it cannot run");
        for text in texts.iter().chain(&[&*name]) {
            assert!(error.message().contains(text), "{error}");
        }
    }
    node.end(vec![pod]).await;
}
