//! UpdateContainerResources that fail midway: cgroup, bundle and record stay consistent.

use criscope_linux::cgroup::Cgroup;

use super::cgroups::{Parent, limit, pod_in, value};
use super::full_disk::Disk;
use crate::prelude::*;

const FIRST: i64 = 96 << 20;
const SECOND: i64 = 128 << 20;

/// The memory limit and CPU quota of a container in the kernel, the bundle and the record.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    kernel: (String, String),
    bundle: Value,
    record: Value,
    status: Value,
}

struct Updated<'a> {
    kubelet: &'a Kubelet,
    id: String,
    dir: PathBuf,
    cgroup: Cgroup,
}

impl Updated<'_> {
    async fn update(&self, change: v1::LinuxContainerResources) -> Result<(), Status> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: self.id.clone(),
            linux: Some(change),
            ..Default::default()
        };
        let mut runtime = self.kubelet.runtime.clone();
        runtime.update_container_resources(request).await?;
        Ok(())
    }

    async fn said(&self) -> Said {
        let read = |name: &str| {
            let text = fs::read(self.dir.join(name)).expect(name);
            serde_json::from_slice::<Value>(&text).expect(name)
        };
        let memory = value(
            &self.cgroup,
            "memory",
            "memory.max",
            "memory.limit_in_bytes",
        );
        let quota = value(&self.cgroup, "cpu", "cpu.max", "cpu.cfs_quota_us");
        let status = self.kubelet.status(&self.id).await;
        Said {
            kernel: (memory, quota),
            bundle: read("config.json")["linux"]["resources"].clone(),
            record: read("record.json")["resources"].clone(),
            status: serde_json::to_value(status.resources.and_then(|r| r.linux)).expect("json"),
        }
    }

    /// Asserts that no temporary file of the bundle or the record is left.
    fn assert_tidy(&self) {
        let names = fs::read_dir(&self.dir).expect("a folder");
        let names = names.map(|e| e.expect("a name").file_name().into_string().expect("text"));
        let drafts: Vec<_> = names
            .filter(|n| n.starts_with("config.") && n != "config.json" || n.starts_with(".record"))
            .collect();
        assert_eq!(drafts, [""; 0]);
    }
}

fn memory(bytes: i64) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        memory_limit_in_bytes: bytes,
        ..Default::default()
    }
}

/// A container with a memory limit, but no CPU limit.
async fn container<'a>(
    daemon: &Daemon,
    kubelet: &'a Kubelet,
    parent: &Parent,
    pod: &crate::harness::kubelet::Pod,
) -> Updated<'a> {
    let mut config = idle("main");
    *limit(&mut config) = memory(FIRST);
    let id = kubelet.launch(pod, config).await;
    Updated {
        kubelet,
        dir: daemon.root().join("root/containers").join(&id),
        cgroup: parent.container(&id),
        id,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_cannot_be_recorded_changes_nothing() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let disk = Disk::at(&daemon.root().join("root/containers"));
    daemon.start().await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let pod = pod_in(&kubelet, &parent, "full").await;
    let container = container(&daemon, &kubelet, &parent, &pod).await;
    let before = container.said().await;
    assert_eq!(before.kernel.0, FIRST.to_string());

    disk.fill();
    let error = container.update(memory(SECOND)).await;
    let error = error.expect_err("the disk is full");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert_eq!(container.said().await, before);
    container.assert_tidy();
    disk.free();

    // The bundle can be written, but not the record, which is a directory.
    let (record, aside) = (
        container.dir.join("record.json"),
        container.dir.join("aside"),
    );
    fs::rename(&record, &aside).expect("aside");
    fs::create_dir_all(record.join("full")).expect("in its place");
    let mut both = memory(SECOND);
    both.cpu_quota = 20_000;
    both.cpu_period = 100_000;
    let error = container.update(both.clone()).await;
    error.expect_err("the record cannot be written");
    fs::remove_dir_all(&record).expect("away");
    fs::rename(&aside, &record).expect("back");
    assert_eq!(container.said().await, before);
    container.assert_tidy();

    container
        .update(both)
        .await
        .expect("UpdateContainerResources");
    let after = container.said().await;
    assert_eq!(after.kernel.0, SECOND.to_string());
    assert_eq!(after.bundle["memory"]["limit"], SECOND);
    assert_eq!(after.bundle["cpu"]["quota"], 20_000);
    container.assert_tidy();
    kubelet.end(&pod).await;
    parent.remove();
    drop(disk);
    daemon.assert_clean();
}

/// With cgroup v2 the kernel would kill a process of the container instead.
#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_below_what_is_in_use_is_refused() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let pod = pod_in(&kubelet, &parent, "shrinks").await;
    let container = container(&daemon, &kubelet, &parent, &pod).await;
    let write = |path: &str| format!("dd if=/dev/zero of={path} bs=1048576 count=48 conv=fsync");
    let held = kubelet.exec(&container.id, &write("/dev/shm/held")).await;
    assert_eq!(held.code, 0, "{}", held.err);
    let before = container.said().await;
    assert_refused(
        container.update(memory(32 << 20)).await,
        Code::FailedPrecondition,
        "33554432 bytes",
    );
    assert_eq!(container.said().await, before);

    // The page cache is dropped instead.
    let script = format!("rm /dev/shm/held && {}", write("/cached"));
    let cached = kubelet.exec(&container.id, &script).await;
    assert_eq!(cached.code, 0, "{}", cached.err);
    let lowered = container.update(memory(32 << 20)).await;
    lowered.expect("nothing else is in use");
    assert_eq!(container.said().await.kernel.0, (32 << 20).to_string());
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

/// crun does not revert limits already set when a later one fails.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_fails_in_the_oci_runtime_changes_nothing() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let fails = daemon.root().join("fails");
    let script = format!(
        "#!/bin/sh\nupdate=no\nfor word; do [ \"$word\" = update ] && update=yes; done\n\
         if [ $update = yes ] && rm {fails} 2>/dev/null; then {runc} \"$@\" && echo not this time >&2; exit 1; fi\n\
         exec {runc} \"$@\"\n",
        fails = fails.display(),
        runc = oci_runtime().display(),
    );
    let program = daemon.add_program("half-way", &script);
    daemon.set_second(&program);
    daemon.start().await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let mut config = kubelet.pod_config("fails");
    config.linux.as_mut().expect("Linux").cgroup_parent = parent.path().to_owned();
    let pod = kubelet.run_with(config, "second").await;
    let container = container(&daemon, &kubelet, &parent, &pod).await;
    let before = container.said().await;

    fs::write(&fails, "").expect("from now on");
    let mut both = memory(SECOND);
    both.cpu_quota = 20_000;
    both.cpu_period = 100_000;
    let error = container.update(both.clone()).await;
    let error = error.expect_err("the OCI runtime fails");
    assert!(error.message().contains("not this time"), "{error}");
    assert!(!fails.exists(), "it was called");
    assert_eq!(container.said().await, before);
    container.assert_tidy();

    container
        .update(both)
        .await
        .expect("UpdateContainerResources");
    assert_eq!(container.said().await.kernel.0, SECOND.to_string());
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}
