//! Cgroups of pods and containers, the limits set there, and the statistics read back, with both versions.
//! `tests/v2/run.sh` runs these on a machine with version 2 only.

use criscope::runtime::oci::spec::CgroupVersion;
use criscope_linux::cgroup::{Cgroup, Hierarchies};

use crate::prelude::*;

/// The cgroup of a pod, created as by the kubelet before RunPodSandbox: with all controllers enabled for its children.
pub(super) struct Parent {
    path: String,
    all: Hierarchies,
    cgroup: Cgroup,
}

impl Parent {
    pub(super) fn new(daemon: &Daemon, name: &str) -> Self {
        let path = format!("{}/{name}", daemon.cgroup());
        let all = Hierarchies::detect().expect("mounted");
        let cgroup = all.make(path.as_ref()).expect("made");
        if all.version() == CgroupVersion::V2 {
            let root = all.at("/".as_ref()).expect("the root");
            let root = root.dir("").expect("there").to_owned();
            let top = root.join(daemon.name());
            for dir in [root, top.clone(), top.join(name)] {
                let offered = fs::read_to_string(dir.join("cgroup.controllers")).expect("read");
                for controller in offered.split_whitespace() {
                    let file = dir.join("cgroup.subtree_control");
                    fs::write(file, format!("+{controller}")).expect(controller);
                }
            }
        }
        Self { path, all, cgroup }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn container(&self, id: &str) -> Cgroup {
        let path = Path::new(&self.path).join(id);
        self.all.at(&path).expect("below")
    }

    /// It belongs to the kubelet.
    pub(super) fn remove(self) {
        let removed = self.cgroup.remove(Duration::from_secs(10));
        removed.expect("nothing is left in it");
    }
}

/// Reads a value from the file of version 2 or 1, whichever is in use.
pub(super) fn value(cgroup: &Cgroup, controller: &str, v2: &str, v1: &str) -> String {
    let name = match cgroup.version() {
        CgroupVersion::V2 => v2,
        CgroupVersion::V1 => v1,
    };
    let file: PathBuf = cgroup.dir(controller).expect("mounted").join(name);
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.trim().to_owned()
}

pub(super) fn limit(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerResources {
    let linux = config.linux.get_or_insert_default();
    linux.resources.get_or_insert_default()
}

pub(super) async fn pod_in(kubelet: &Kubelet, parent: &Parent, name: &str) -> Pod {
    let mut config = kubelet.pod_config(name);
    config.linux.as_mut().expect("Linux").cgroup_parent = parent.path.clone();
    kubelet.run(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_limits_are_set_in_the_cgroup() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let pod = pod_in(&kubelet, &parent, "limits").await;
    // 8 MiB in a shell variable.
    let script = "trap 'exit 0' TERM; x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do \
                  x=$x$x; done; echo up; sleep 1000000 & wait";
    let mut config = shell("main", script);
    *limit(&mut config) = v1::LinuxContainerResources {
        memory_limit_in_bytes: 96 << 20,
        cpu_shares: 512,
        cpu_period: 100_000,
        cpu_quota: 50_000,
        ..Default::default()
    };
    let id = kubelet.launch(&pod, config).await;
    let cgroup = parent.container(&id);
    let memory = |cgroup: &Cgroup| value(cgroup, "memory", "memory.max", "memory.limit_in_bytes");
    let quota = |cgroup: &Cgroup| {
        let text = value(cgroup, "cpu", "cpu.max", "cpu.cfs_quota_us");
        text.split(' ').next().map(str::to_owned)
    };
    assert_eq!(memory(&cgroup), (96 << 20).to_string());
    assert_eq!(quota(&cgroup).as_deref(), Some("50000"));
    let share = value(&cgroup, "cpu", "cpu.weight", "cpu.shares");
    let share: u64 = share.parse().expect("a number");
    match cgroup.version() {
        // Less than the default 100; how much less depends on the version of the OCI runtime.
        CgroupVersion::V2 => assert!((1..100).contains(&share), "{share}"),
        CgroupVersion::V1 => assert_eq!(share, 512),
    }
    if cgroup.version() == CgroupVersion::V2 {
        let swap = value(&cgroup, "memory", "memory.swap.max", "");
        assert_eq!(swap, "0", "memory and swap together have the limit");
    }

    kubelet.logged(&id, "up").await;
    // Statistics of the container and, from its own cgroup, of the pod.
    until("statistics of the container and the pod", || async {
        let linux = kubelet.pod_stats(&pod.id).await?;
        let whole = linux.memory?.working_set_bytes?.value;
        let part = linux.containers[0].memory.as_ref()?;
        let (set, rss) = (part.working_set_bytes.as_ref()?, part.rss_bytes.as_ref()?);
        let left = part.available_bytes.as_ref()?.value;
        let busy = linux.cpu?.usage_core_nano_seconds?.value > 0;
        let both = linux.process?.process_count?.value == 2;
        let held = set.value >= 8 << 20 && rss.value >= 8 << 20 && whole >= set.value;
        let limited = left > 0 && left < 96 << 20;
        (held && limited && busy && both).then_some(())
    })
    .await;

    let resources = v1::LinuxContainerResources {
        memory_limit_in_bytes: 128 << 20,
        cpu_quota: 20_000,
        ..Default::default()
    };
    kubelet.update(&id, resources).await;
    assert_eq!(memory(&cgroup), (128 << 20).to_string());
    assert_eq!(quota(&cgroup).as_deref(), Some("20000"));

    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

/// The kubelet sets this since 1.28: the OOM killer kills the whole container, not only its largest process.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_oom_killed_as_a_whole_where_supported() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let pod = pod_in(&kubelet, &parent, "hungry").await;
    let eater = "(x=0123456789abcdef; while :; do x=$x$x; done); echo outlived; sleep 1000000";
    let mut config = shell("main", eater);
    let group = ("memory.oom.group".to_owned(), "1".to_owned());
    *limit(&mut config) = v1::LinuxContainerResources {
        memory_limit_in_bytes: 24 << 20,
        unified: [group].into(),
        ..Default::default()
    };
    if parent.cgroup.version() == CgroupVersion::V1 {
        let refused = kubelet.try_create(&pod, config).await.expect_err("refused");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    } else {
        let id = kubelet.launch(&pod, config).await;
        let status = kubelet.ended(&id).await;
        assert_eq!(
            (status.exit_code, status.reason.as_str()),
            (137, "OOMKilled")
        );
        assert!(kubelet.log(&id).await.is_empty());
    }
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

/// With cgroup v2 a container sees its own cgroup as the root, and cannot write to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_only_its_own() {
    let (daemon, kubelet, pod) = node_with_pod("inside").await;
    let mut config = idle("main");
    limit(&mut config).memory_limit_in_bytes = 64 << 20;
    let id = kubelet.launch(&pod, config).await;
    let all = Hierarchies::detect().expect("mounted");
    if all.version() == CgroupVersion::V2 {
        let own = kubelet.says(&id, "cat /proc/self/cgroup").await;
        assert_eq!(own, "0::/");
        let max = kubelet.says(&id, "cat /sys/fs/cgroup/memory.max").await;
        assert_eq!(max, (64 << 20).to_string());
    } else {
        let path = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let max = kubelet.says(&id, &format!("cat {path}")).await;
        assert_eq!(max, (64 << 20).to_string());
    }
    let write =
        "echo 1 > $(ls /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs 2>/dev/null)";
    assert_ne!(kubelet.exec(&id, write).await.code, 0, "it is read-only");
    daemon.end(&kubelet, [&pod]).await;
}

/// runc 1.1 drops its state even if the cgroup was busy, and a second `delete` finds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_that_the_oci_runtime_leaves_is_removed() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let script = format!(
        r#"#!/bin/sh
'{runc}' "$@" || exit
verb=
for word; do [ "$word" = delete ] && verb=delete; done
[ "$verb" = delete ] || exit 0
for dir in /sys/fs/cgroup{pod} /sys/fs/cgroup/*{pod}; do
    [ ! -d "$dir" ] || mkdir -p "$dir/$word/nested"
done
"#,
        runc = oci_runtime().display(),
        pod = format_args!("{}/pod1", daemon.cgroup()),
    );
    let forgets = daemon.add_program("forgets", &script);
    daemon.set_second(&forgets);
    daemon.start().await;
    let parent = Parent::new(&daemon, "pod1");
    let kubelet = Kubelet::of(&daemon).await;
    let mut config = kubelet.pod_config("left");
    config.linux.get_or_insert_default().cgroup_parent = parent.path().to_owned();
    let pod = kubelet.run_with(config, "second").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    assert!(parent.container(&id).exists());
    kubelet.end(&pod).await;
    assert!(!parent.container(&id).exists(), "it was left");
    parent.remove();
    daemon.assert_clean();
}

/// A daemon whose second handler has writable cgroups.
async fn writable() -> Daemon {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let path = oci_runtime();
    daemon.configure(&format!(
        "[runtime.handlers.second]\npath = {path:?}\ncgroup_writable = true\n"
    ));
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_writable_cgroups_makes_its_own() {
    let mut daemon = writable().await;
    daemon.without_second();
    if Hierarchies::detect().expect("mounted").version() == CgroupVersion::V1 {
        let (status, log) = daemon.spawn().ended().await;
        let log = log.join("\n");
        assert_eq!(status.code(), Some(1), "{log}");
        let reason =
            "runtime.handlers.second.cgroup_writable: needs cgroup v2, and this node has v1";
        assert!(log.contains(reason), "{log}");
        return;
    }
    let kubelet = daemon.serve().await;
    let pod = kubelet.run_with(kubelet.pod_config("own"), "second").await;
    let mut config = idle("main");
    limit(&mut config).memory_limit_in_bytes = 64 << 20;
    let id = kubelet.launch(&pod, config).await;
    let own = "cd /sys/fs/cgroup; mkdir sub && echo $$ > sub/cgroup.procs && cat /proc/self/cgroup";
    assert_eq!(kubelet.says(&id, own).await, "0::/sub");
    // `nsdelegate`: the limits of the root of a cgroup namespace are those of the namespace above. A privileged container of crun 1.8,
    // which other tests have, turns it off on the node.
    if !oci_runtime().ends_with("crun") {
        let raise = "echo max > /sys/fs/cgroup/memory.max";
        assert_ne!(kubelet.exec(&id, raise).await.code, 0, "its own limit");
        let max = kubelet.says(&id, "cat /sys/fs/cgroup/memory.max").await;
        assert_eq!(max, (64 << 20).to_string());
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privileged_container_leaves_the_options_of_the_hierarchy() {
    // crun 1.8 drops them, and the other tests of the machine need them.
    if oci_runtime().ends_with("crun") {
        return;
    }
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("read");
        let mut lines = table.lines().filter(|line| line.contains(" - cgroup2 "));
        lines
            .next()
            .map(|line| line[line.rfind(' ').expect("several")..].to_owned())
    };
    let before = options();
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("privileged");
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let pod = kubelet.run(config).await;
    let mut config = idle("main");
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(
        kubelet
            .exec(
                &id,
                "test -e /sys/fs/cgroup/cgroup.procs -o -d /sys/fs/cgroup/memory"
            )
            .await
            .code,
        0
    );
    assert_eq!(options(), before);
    daemon.end(&kubelet, [&pod]).await;
}
