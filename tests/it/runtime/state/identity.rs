//! Mismatched root and state directories.

use nix::mount::{MsFlags, mount, umount};

use super::{Running, change, refused};
use crate::prelude::*;

/// A killed daemon, and its pod, which still runs.
async fn killed_with_a_pod() -> (Daemon, Running) {
    let (mut daemon, kubelet) = node().await;
    let pod = Running::new(&kubelet, "kept").await;
    daemon.kill();
    (daemon, pod)
}

/// Restarts the daemon, asserts that it still has the pod, and removes the pod.
async fn finds(daemon: &Daemon, pod: &Running, when: &str) {
    let kubelet = Kubelet::of(daemon).await;
    pod.is_well(&kubelet, when).await;
    kubelet.end(&pod.pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_root_refuses_the_start_and_touches_no_pod() {
    let (mut daemon, pod) = killed_with_a_pod().await;
    let (root, away) = (daemon.root().join("root"), daemon.root().join("away"));
    fs::rename(&root, &away).expect("rename");
    let names = [&root, &daemon.state().join("state")].map(|path| path.display().to_string());

    for (when, make) in [("none", false), ("an empty one", true)] {
        if make {
            fs::create_dir(&root).expect("dir");
        }
        let said = refused(&daemon).await;
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
        pod.lives(when);
        assert_eq!(root.exists(), make, "{when}");
        if make {
            assert_eq!(fs::read_dir(&root).expect("dir").count(), 0, "{when}");
        }
    }

    // A root of another node, or an older one.
    fs::remove_dir(&root).expect("dir");
    fs::create_dir(&root).expect("dir");
    let identity = root.join("identity.json");
    fs::copy(away.join("identity.json"), &identity).expect("identity");
    change(&identity, |identity| identity["id"] = "0123".into());
    fs::create_dir_all(root.join("sandboxes").join(&pod.pod.id)).expect("dir");
    let said = refused(&daemon).await;
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    pod.lives("another one");

    fs::remove_dir_all(&root).expect("dir");
    fs::rename(&away, &root).expect("rename");
    daemon.start().await;
    finds(&daemon, &pod, "its own").await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_with_pods_of_another_state_is_refused() {
    let (mut daemon, pod) = killed_with_a_pod().await;
    let state = daemon.state().join("state");
    let none = None::<&str>;
    mount(Some("tmpfs"), &state, Some("tmpfs"), MsFlags::empty(), none).expect("tmpfs");
    let said = refused(&daemon).await;
    umount(&state).expect("umount");
    assert!(said.contains(&state.display().to_string()), "{said}");
    pod.lives("another state");

    daemon.start().await;
    finds(&daemon, &pod, "its own").await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_identity_is_adopted() {
    let (mut daemon, pod) = killed_with_a_pod().await;
    let identities = [daemon.root().join("root"), daemon.state().join("state")];
    for dir in &identities {
        fs::remove_file(dir.join("identity.json")).expect("identity");
    }
    daemon.start().await;
    for dir in &identities {
        assert!(dir.join("identity.json").exists());
    }
    finds(&daemon, &pod, "adopted").await;

    // Nothing runs any more, so another root is a new store.
    daemon.kill();
    fs::remove_file(daemon.root().join("root/identity.json")).expect("identity");
    daemon.start().await;
    daemon.assert_clean();
}
