//! What the default seccomp profile blocks, tried by a program in a container, with runc and with crun.

use criscope::cri::v1::security_profile::ProfileType;

use super::crun;
use crate::harness::executable::compile;
use crate::prelude::*;

/// Allowed in containers on every machine, which shows that the program works.
const ALLOWED: &[&str] = &["unix", "inet", "netlink", "personality-uname26"];

/// Calls that fail with ENOSYS, so that programs fall back: filters cannot see their arguments in memory.
const ABSENT: &[&str] = &["clone3", "32-socketcall-alg", "32-socketcall-vsock"];

/// New in Linux 6.15: runc makes calls newer than the profile fail with ENOSYS.
const NEW: &str = "open_tree_attr";

/// The result of each call in a container with this kind of profile.
async fn tried(
    daemon: &Daemon,
    kubelet: &Kubelet,
    handler: &str,
    kind: ProfileType,
) -> BTreeMap<String, String> {
    let config = kubelet.pod_config("tries");
    let pod = kubelet.run_with(config, handler).await;
    let dir = daemon.root().join("tries");
    fs::create_dir_all(&dir).expect("directory");
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

/// Asserts that only [`ALLOWED`] is permitted, and that the rest fails with the expected error.
async fn assert_closed(daemon: &Daemon, kubelet: &Kubelet, handler: &str) {
    let open = tried(daemon, kubelet, handler, ProfileType::Unconfined).await;
    // Without a filter the same calls get further, so it is the filter that blocks them.
    for name in ["vsock-high", "unshare-user", "keyctl", "clone3"] {
        let kept = [Some("1"), Some("38")].contains(&open.get(name).map(String::as_str));
        // With default capabilities, user namespaces cannot be created everywhere.
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
    let (daemon, kubelet) = node().await;
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
    let kubelet = daemon.serve().await;
    assert_closed(&daemon, &kubelet, "crun").await;
    // The compiled filter is reused for the next container, and is equivalent.
    assert_closed(&daemon, &kubelet, "crun").await;
    daemon.assert_clean();
}
