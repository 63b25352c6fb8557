//! A full disk: calls that free space must work.

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::prelude::*;

/// A small private disk.
pub(super) struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

impl Disk {
    pub(super) fn at(path: &Path) -> Self {
        Self::with(path, "size=2m,mode=711")
    }

    /// With these options of tmpfs(5).
    pub(super) fn with(path: &Path, options: &str) -> Self {
        fs::create_dir_all(path).expect("dir");
        let options = Some(options);
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            options,
        )
        .expect("tmpfs");
        Self(path.to_owned())
    }

    /// Fills the disk.
    pub(super) fn fill(&self) {
        let error = fs::write(self.0.join("full"), vec![0; 4 << 20]).expect_err("no room");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    pub(super) fn free(&self) {
        fs::remove_file(self.0.join("full")).expect("full");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_stopped_and_removed_on_a_full_disk() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let root = daemon.root().join("root");
    let disks = ["sandboxes", "containers"].map(|name| Disk::at(&root.join(name)));
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("full").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let made = kubelet.try_create(&pod, idle("made")).await.expect("made");
    disks.iter().for_each(Disk::fill);

    // Calls that need space report that it is missing.
    let more = kubelet.try_run(kubelet.pod_config("more"), "").await;
    assert_eq!(more.err().map(|e| e.code()), Some(Code::ResourceExhausted));
    let more = kubelet.try_create(&pod, idle("more")).await;
    assert_eq!(more.err().map(|e| e.code()), Some(Code::ResourceExhausted));
    let start = kubelet.start(&made).await;
    assert_eq!(start.err().map(|e| e.code()), Some(Code::ResourceExhausted));

    kubelet.stop(&id, 0).await;
    assert_eq!(kubelet.status(&id).await.exit_code, 137);
    kubelet.remove(&id).await;
    kubelet.stop_pod(&pod.id).await;
    let state = kubelet.pod_status(&pod).await.state();
    assert!(state == v1::PodSandboxState::SandboxNotready);
    kubelet.end(&pod).await;

    disks.iter().for_each(Disk::free);
    // The name of the failed pod is free.
    let pod = kubelet.plain_pod("more").await;
    kubelet.end(&pod).await;
    for disk in &disks {
        let left = fs::read_dir(&disk.0).expect("a disk").count();
        assert_eq!(left, 0, "{}", disk.0.display());
    }
    drop(disks);
    daemon.assert_clean();
}
