//! Power failures, which lose unsynced data.

use super::disk::Disk;
use crate::prelude::*;

/// The allocated addresses.
fn leases(daemon: &Daemon) -> Vec<String> {
    let dir = daemon.root().join("ipam").join(daemon.name());
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("10.")).collect()
}

/// Copying the image of a disk in use without a sync simulates a power failure. The address, which is stored elsewhere,
/// stays allocated, and the plugins' cached results, which are never synced, are lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_given_back_after_a_power_failure() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let root = daemon.root();
    let (image, copy) = (root.join("disk.img"), root.join("copy.img"));
    let sandboxes = root.join("root/sandboxes");
    let disk = Disk::new(&image, &sandboxes);
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("lost").await;
    fs::copy(&image, &copy).expect("copy");
    assert_eq!(leases(&daemon).len(), 1);
    daemon.kill();
    leaks::end(|| leaks::processes(daemon.name()));
    drop(disk);
    leaks::unmount(&leaks::mounts(daemon.name()));
    fs::remove_dir_all(root.join("cache")).expect("results");
    fs::remove_dir_all(daemon.state().join("state")).expect("state");

    let disk = Disk::mount(&copy, &sandboxes);
    // Another boot.
    for name in ["record.json", "made.json"] {
        let path = sandboxes.join(&pod.id).join(name);
        if path.exists() {
            super::change(&path, |record| record["boot"] = "another".into());
        }
    }
    let kubelet = daemon.serve().await;
    // The kubelet removes the remaining pods.
    let mut runtime = kubelet.runtime.clone();
    let all = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default());
    for left in all.await.expect("ListPodSandbox").into_inner().items {
        kubelet.remove_pod(&left.id).await;
    }
    assert_eq!(leases(&daemon), [""; 0]);
    drop(disk);
    daemon.assert_clean();
}
