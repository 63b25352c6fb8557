//! The drop-in directory while criscope runs, and configurations of other runtimes as nodes have them.

use crate::prelude::*;

async fn wait_level(proxy: &Proxy, wanted: &str) {
    until_true("the log level", async || {
        proxy.get("/debug/log-level").await.1 == wanted
    })
    .await;
}

#[tokio::test]
async fn a_reload_reads_the_drop_in_files_again() {
    let fake = Fake::new();
    let proxy = configured(&fake, "[telemetry.log]\nlevel = \"warn,criscope=info\"\n").await;
    proxy.reload_drop_in("50-log.toml", Some("telemetry.log.level = \"debug\"\n"));
    let line = proxy.wait_event("config.reloaded").await;
    assert_eq!(line["changed"], "telemetry.log.level");
    wait_level(&proxy, "debug").await;

    // The last file counts, and a level is no reason for a restart.
    proxy.reload_drop_in("60-log.toml", Some("telemetry.log.level = \"info\"\n"));
    wait_level(&proxy, "info").await;

    // Nothing of a broken one is used, and nothing of the files beside it.
    proxy.reload_drop_in(
        "70-broken.toml",
        Some("telemetry.log.level = \"debug\"\nserver.mdoe = \"0600\"\n"),
    );
    let line = proxy.wait_event("config.rejected").await;
    let error = line["error.message"].as_str().unwrap_or_default();
    assert!(
        error.contains("conf.d/70-broken.toml:2: server.mdoe"),
        "{error}"
    );
    wait_level(&proxy, "info").await;

    proxy.reload_drop_in("70-broken.toml", Some("server.mode = \"0600\"\n"));
    let line = proxy.wait_event("config.restart_needed").await;
    assert_eq!(line["keys"], "server.mode");

    // Without the files, the main one counts again.
    proxy.reload_drop_in("60-log.toml", None);
    wait_level(&proxy, "debug").await;
    proxy.reload_drop_in("50-log.toml", None);
    wait_level(&proxy, "warn,criscope=info").await;
    proxy.stop().await;
}

fn run(args: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(crate::CRISCOPE);
    let output = command.args(args).args(files).output();
    output.expect("start criscope")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Migrates this file; returns the configuration, which is valid, and the report.
fn migrated(from: &str, file: &Path) -> (String, String) {
    let output = run(&["migrate-config", "--from", from], &[file]);
    let report = text(&output.stderr);
    assert!(output.status.success(), "{report}");
    // Not beside it, where drop-in files of the other runtime would count as those of criscope.
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("criscope.toml");
    fs::write(&made, &output.stdout).expect("written");
    let checked = run(&["check-config"], &[&made]);
    let said = text(&checked.stdout) + &text(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    (text(&output.stdout), report)
}

#[test]
fn what_containerd_dumps_is_migrated() {
    let dumped = Command::new(program("containerd", "containerd"))
        .args(["config", "default"])
        .output()
        .expect("start containerd");
    assert!(dumped.status.success());
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    let dumped = text(&dumped.stdout);
    assert!(dumped.contains("imports = []"), "{dumped}");
    let imports = "imports = [\"conf.d/*.toml\"]";
    fs::write(&file, dumped.replace("imports = []", imports)).expect("written");
    let (before, _) = migrated("containerd", &file);

    // Its imports count, and later ones override earlier ones.
    let drop_ins = dir.path().join("conf.d");
    fs::create_dir(&drop_ins).expect("created");
    let cri = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n";
    for (name, seconds) in [("10.toml", 33), ("20.toml", 44)] {
        let text = format!("{cri}stats_collect_period = {seconds}\n");
        fs::write(drop_ins.join(name), text).expect("written");
    }
    let (after, _) = migrated("containerd", &file);
    assert!(!before.contains("44s"), "{before}");
    assert!(after.contains("44s") && !after.contains("33s"), "{after}");
    for made in [before, after] {
        assert!(made.contains("[runtime.handlers.runc]"), "{made}");
    }
}

#[test]
fn the_drop_in_files_of_crio_are_migrated() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("crio.conf");
    fs::write(
        &file,
        "[crio.runtime]\ndefault_runtime = \"runc\"\npids_limit = 2048\n[crio.runtime.runtimes.runc]\nruntime_path = \"/usr/sbin/runc\"\n",
    )
    .expect("written");
    let drop_ins = dir.path().join("crio.conf.d");
    fs::create_dir(&drop_ins).expect("created");
    // What the packages of CRI-O install: crun is the default.
    fs::write(
        drop_ins.join("10-crio.conf"),
        "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n",
    )
    .expect("written");
    let (made, _) = migrated("crio", &file);
    assert!(made.contains("default_handler = \"crun\""), "{made}");
    for handler in ["[runtime.handlers.runc]", "[runtime.handlers.crun]"] {
        assert!(made.contains(handler), "{made}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_of_usage() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    for text in [None, Some("version = \n")] {
        if let Some(text) = text {
            fs::write(&file, text).expect("written");
        }
        let output = run(&["migrate-config", "--from", "containerd"], &[&file]);
        let errors = self::text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{errors}");
        assert!(errors.contains("config.toml"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}
