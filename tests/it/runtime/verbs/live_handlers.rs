//! Runtime handlers that appear, change and disappear while criscope runs, as the drop-in files of kata-deploy and nvidia-ctk make them.

use crate::prelude::*;

const DROP_IN: &str = "50-second.toml";

/// An OCI runtime under another name, which writes down what it is called with.
fn program(daemon: &Daemon, name: &str) -> PathBuf {
    let (notes, real) = (notes(daemon, name), oci_runtime());
    let (notes, real) = (notes.display(), real.display());
    let script = format!("#!/bin/sh\necho \"$*\" >> {notes}\nexec {real} \"$@\"\n");
    daemon.add_program(name, &script)
}

fn notes(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.root().join(format!("{name}.notes"))
}

/// Whether a program was called to create a container.
fn created(daemon: &Daemon, name: &str, id: &str) -> bool {
    let notes = fs::read_to_string(notes(daemon, name)).expect("notes");
    let mut calls = notes.lines();
    calls.any(|call| call.contains(" create ") && call.contains(id))
}

fn handler(path: &Path) -> String {
    format!("[runtime.handlers.second]\npath = {path:?}\n")
}

/// Replaces or removes the drop-in file, and waits for the result of the reload, which is the last one in the log then.
pub(super) async fn reload(daemon: &Daemon, drop_in: Option<&str>) -> Value {
    let results = || {
        let mut events = daemon.program().events();
        events.retain(|line| {
            line["event"] == "config.reloaded" || line["event"] == "config.rejected"
        });
        events
    };
    let before = results().len();
    daemon.program().reload_drop_in(DROP_IN, drop_in);
    until("the result of a reload", || async {
        results().get(before).cloned()
    })
    .await
}

/// The names of the handlers that Status lists, and the verbose configuration.
async fn listed(kubelet: &Kubelet) -> (Vec<String>, Value) {
    let status = kubelet.runtime_status().await;
    // What the same program supports does not depend on its name.
    let features: Vec<_> = { status.runtime_handlers.iter() }
        .map(|handler| handler.features)
        .collect();
    assert!(features.windows(2).all(|two| two[0] == two[1]));
    let names = status.runtime_handlers.into_iter();
    let config = serde_json::from_str(&status.info["config"]).expect("JSON");
    (names.map(|handler| handler.name).collect(), config)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_a_drop_in_comes_changes_and_goes_without_a_restart() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.without_second();
    let kubelet = daemon.serve().await;
    let (first, other) = (program(&daemon, "first"), program(&daemon, "other"));
    let run = |name: &'static str| kubelet.try_run(kubelet.pod_config(name), "second");
    let refused = |error: Status| {
        assert_eq!(error.code(), Code::InvalidArgument);
        let expected = "there is no runtime handler \"second\"; there are: runc";
        assert!(error.message().contains(expected), "{error}");
    };
    refused(run("early").await.err().expect("no such handler"));

    let result = reload(&daemon, Some(&handler(&first))).await;
    let changed = result["changed"].as_str().expect("keys").to_owned();
    assert!(changed.contains("runtime.handlers.second.path"), "{result}");
    let (names, config) = listed(&kubelet).await;
    assert_eq!(names, ["", "runc", "second"]);
    assert_eq!(
        config["handlers"]["second"]["path"],
        first.to_str().expect("text")
    );
    let old = run("old").await.expect("RunPodSandbox");
    let container = kubelet.launch(&old, idle("main")).await;
    assert!(created(&daemon, "first", &container));

    // Another program: it is that of new pods, and the default one.
    let changed = format!(
        "{}[runtime]\ndefault_handler = \"second\"\n",
        handler(&other)
    );
    let result = reload(&daemon, Some(&changed)).await;
    assert_eq!(
        result["changed"],
        "runtime.default_handler runtime.handlers.second.path"
    );
    let new = kubelet.plain_pod("new").await;
    let in_new = kubelet.launch(&new, idle("main")).await;
    assert!(created(&daemon, "other", &in_new));
    let in_old = kubelet.launch(&old, idle("more")).await;
    assert!(created(&daemon, "first", &in_old));
    let late = kubelet.try_create(&old, idle("late")).await;
    let late = late.expect("CreateContainer");
    assert_eq!(listed(&kubelet).await.1["defaultHandler"], "second");

    // Without the handler its pods live on, until they are taken down.
    let result = reload(&daemon, None).await;
    assert_eq!(result["event"], "config.reloaded");
    let (names, config) = listed(&kubelet).await;
    assert_eq!(names, ["", "runc"]);
    assert_eq!(config["defaultHandler"], "runc");
    let told = daemon
        .program()
        .wait_line("the pods without a handler", |line| {
            line["event"] == "runtime.handler" && line["cri.runtime_handler"] == "second"
        });
    assert_eq!(told.await["pods"], 2);
    refused(run("late").await.err().expect("no handler"));
    refused(
        kubelet
            .try_create(&old, idle("new"))
            .await
            .expect_err("no handler"),
    );
    refused(kubelet.start(&late).await.expect_err("no handler"));
    for id in [&container, &in_old, &in_new] {
        assert_eq!(kubelet.says(id, "echo on").await, "on");
    }
    let plain = kubelet.plain_pod("plain").await;
    kubelet.launch(&plain, idle("main")).await;
    for pod in [&old, &new, &plain] {
        kubelet.end(pod).await;
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_cannot_be_used_changes_nothing() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.without_second();
    // One that has been missing from the start is no reason to refuse anything.
    daemon.set_runtime("pids_limit = 300\nhandlers.absent.path = \"/no/such/program\"\n");
    let kubelet = daemon.serve().await;
    let second = handler(&program(&daemon, "first"));
    let classes = daemon.root().join("blockio.yaml");
    fs::write(&classes, "Classes: {slow: [{Weight: 5}]}").expect("written");
    let result = reload(&daemon, Some(&second)).await;
    assert_eq!(result["event"], "config.reloaded");

    let with = |keys: &str| format!("{second}[runtime]\npids_limit = 400\n{keys}\n");
    for (keys, why) in [
        (
            "handlers.third.path = \"/no/such/other\"",
            "the OCI runtime of handler third, /no/such/other, is not there or cannot be executed",
        ),
        (
            "handlers.third.runtime_type = \"io.containerd.none.v2\"",
            "the shim of containerd of handler third, containerd-shim-none-v2, is not there",
        ),
        (
            "default_handler = \"fourth\"",
            "there is no handler \"fourth\"",
        ),
        (
            &format!("blockio_config_file = {classes:?}"),
            "Weight 5 is not between",
        ),
        (
            "rdt_config_file = \"/no/such/classes\"",
            "/no/such/classes: No such file",
        ),
    ] {
        let result = reload(&daemon, Some(&with(keys))).await;
        assert_eq!(result["event"], "config.rejected", "{result}");
        let taken_over = |scrape: &Scrape| {
            let metric = scrape.metric("criscope_config_last_reload_successful");
            !metric.is_empty() && metric.sum() == 0.0
        };
        daemon
            .program()
            .wait_scrape("the refusal", taken_over)
            .await;
        let error = result["error.message"].as_str().expect("an error");
        assert!(error.contains(why), "{error}");
        let (names, config) = listed(&kubelet).await;
        assert_eq!(names, ["", "runc", "second"]);
        assert_eq!(config["settings"]["runtime.pids_limit"], "300");
    }
    // Neither does one whose handler has lost its program.
    fs::remove_file(daemon.root().join("bin/first")).expect("removed");
    let result = reload(&daemon, Some(&with(""))).await;
    assert_eq!(result["event"], "config.rejected", "{result}");
    let second = handler(&program(&daemon, "first"));
    let result = reload(&daemon, Some(&second)).await;
    assert_eq!(result["event"], "config.reloaded", "{result}");
    let pod = kubelet.run_with(kubelet.pod_config("pod"), "second").await;
    kubelet.launch(&pod, idle("main")).await;
    daemon.end(&kubelet, [&pod]).await;
}
