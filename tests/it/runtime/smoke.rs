//! The canary with the built-in runtime: the parent cgroup of its pod is restored.

use criscope_linux::cgroup::Hierarchies;

use crate::prelude::*;

/// Runs the canary; returns its output.
async fn smoke(daemon: &Daemon, parent: &str) -> String {
    let mut smoke = Command::new(crate::CRISCOPE);
    smoke
        .arg("smoke")
        .arg("--endpoint")
        .arg(format!("unix://{}", daemon.socket().display()))
        .arg("--cgroup-parent")
        .arg(parent);
    let ended = tokio::task::spawn_blocking(move || smoke.output()).await;
    let output = ended.expect("joined").expect("start");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_parent_cgroup_is_removed_and_an_existing_one_kept() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let all = Hierarchies::detect().expect("mounted");
    let deep = format!("{}/below", daemon.cgroup());

    let said = smoke(&daemon, &deep).await;
    assert!(!said.contains("left behind"), "{said}");
    assert_eq!(leaks::cgroups(daemon.name()), Vec::<PathBuf>::new());

    all.make(daemon.cgroup().as_ref()).expect("made");
    let there = leaks::cgroups(daemon.name());
    let said = smoke(&daemon, &deep).await;
    assert!(!said.contains("left behind"), "{said}");
    assert_eq!(leaks::cgroups(daemon.name()), there);
    daemon.assert_clean();
}
