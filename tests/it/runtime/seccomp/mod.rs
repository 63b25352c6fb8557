//! What the default seccomp profile keeps from a container, tried by a program in one, with runc and with crun.

use std::collections::BTreeMap;
use std::path::Path;

use criscope::cri::v1;
use criscope::cri::v1::security_profile::ProfileType;

use super::crun;
use crate::harness::daemon::Daemon;
use crate::harness::executable::compile;
use crate::harness::kubelet::{Kubelet, idle, security};

/// What every machine's container may do: it shows that the program works.
const ALLOWED: &[&str] = &["unix", "inet", "netlink", "personality-uname26"];

/// What is as if the kernel did not have it, so that programs do without: their arguments lie in memory.
const ABSENT: &[&str] = &["clone3", "32-socketcall-alg", "32-socketcall-vsock"];

/// What came with Linux 6.15: runc says of calls that a profile does not know yet that the kernel has them not.
const NEW: &str = "open_tree_attr";

/// What came of each call in a container with this kind of profile.
async fn tried(
    daemon: &Daemon,
    kubelet: &Kubelet,
    handler: &str,
    kind: ProfileType,
) -> BTreeMap<String, String> {
    let config = kubelet.pod_config("tries");
    let pod = kubelet.try_run(config, handler).await;
    let pod = pod.expect("RunPodSandbox");
    let dir = daemon.root().join("tries");
    std::fs::create_dir_all(&dir).expect("directory");
    compile(
        Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/runtime/seccomp/tries.c"
        )),
        &dir.join("tries"),
    );
    let mut config = idle("tries");
    config.mounts.push(v1::Mount {
        container_path: "/tries".to_owned(),
        host_path: dir.display().to_string(),
        readonly: true,
        ..Default::default()
    });
    security(&mut config).seccomp = Some(v1::SecurityProfile {
        profile_type: kind.into(),
        ..Default::default()
    });
    let id = kubelet.launch(&pod, config).await;
    let said = kubelet.says(&id, "/tries/tries").await;
    kubelet.end(&pod).await;
    let pairs = said.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, what)| (name.to_owned(), what.to_owned()))
        .collect()
}

/// Nothing but [`ALLOWED`] is let through, with the error that says so.
async fn assert_closed(daemon: &Daemon, kubelet: &Kubelet, handler: &str) {
    let open = tried(daemon, kubelet, handler, ProfileType::Unconfined).await;
    // Without a filter the same calls come further: it is the filter that keeps them.
    for name in ["vsock-high", "unshare-user", "keyctl", "clone3"] {
        let kept = [Some("1"), Some("38")].contains(&open.get(name).map(String::as_str));
        // The default capabilities are not enough to make a user namespace everywhere.
        assert!(!kept || name == "unshare-user", "{name}: {open:?}");
    }
    let closed = tried(daemon, kubelet, handler, ProfileType::RuntimeDefault).await;
    assert_eq!(closed.len(), open.len(), "{closed:?}");
    for (name, what) in &closed {
        let expected = match name.as_str() {
            name if ALLOWED.contains(&name) || name == "32-unix" => "ok",
            name if ABSENT.contains(&name) => "38",
            _ => "1",
        };
        let new = name == NEW && what == "38";
        assert!(new || what == expected, "{handler:?} {name}: {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_profile_with_runc() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    assert_closed(&daemon, &kubelet, "").await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_profile_with_crun() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let crun = crun::crun(&daemon);
    daemon.configure(&format!(
        "[runtime.handlers.crun]\npath = \"{}\"\n",
        crun.display()
    ));
    daemon.start().await;
    let kubelet = Kubelet::of(&daemon).await;
    assert_closed(&daemon, &kubelet, "crun").await;
    // What was compiled once serves the next container, and is the same.
    assert_closed(&daemon, &kubelet, "crun").await;
    daemon.assert_clean();
}
