//! Faults that the calls themselves show: mounts, limits and users of a container.

use super::super::spec::{Container, Probe, linux, security};
use super::super::stage::{Play, seconds};
use super::super::{Case, seen};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str =
    "cni; registry; nothing slow; the kubelet took|the kubelet has made no call|kubelet: ";

/// A hundredth of a CPU.
fn throttle(config: &mut v1::ContainerConfig) {
    let resources = linux(config).resources.get_or_insert_default();
    resources.cpu_period = 100_000;
    resources.cpu_quota = 1_000;
}

/// An empty directory of the node.
fn empty(it: &Play) -> PathBuf {
    let dir = it.stage.root.join(format!("{}-empty", it.pod));
    fs::create_dir_all(&dir).expect("dir");
    dir
}

/// What both runtimes have.
pub(in super::super) fn common() -> Vec<Case> {
    vec![
        seen(
            "request: a mount hides the program",
            &[("app; /bin; hides", OTHERS, "failing")],
            |it| async move {
                let mut spec = it.idle();
                spec.volume = Some((empty(&it), "/bin"));
                let pod = it.add(spec);
                it.wait(&pod, "two failures", |done| done.failed >= 2).await;
                [it.seen().await]
            },
        ),
        seen(
            "request: lack of memory names the limit",
            &[(
                "app; memory|OOM; 16 MiB",
                OTHERS,
                "crash_loop|failed|failing",
            )],
            |it| async move {
                let hungry = "sleep 1; x=1234567890; while :; do x=$x$x; done";
                let hungry = Container::shell("app", hungry).with(|config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    resources.memory_limit_in_bytes = 16 << 20;
                });
                let pod = it.add(it.spec(vec![hungry]));
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
        seen(
            "request: a user may not run the program",
            &[("app; exit code", OTHERS, "crash_loop")],
            |it| async move {
                let dir = empty(&it);
                executable(&dir.join("tool"), "#!/bin/sh\nsleep 100000\n");
                let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                fs::set_permissions(dir.join("tool"), owner_only).expect("chmod");
                let mut spec = it.idle();
                spec.volume = Some((dir, "/opt"));
                // runc starts the container, whose first process then cannot become the program.
                spec.containers[0].command = vec!["/opt/tool".to_owned()];
                spec.containers[0].edit =
                    |config| security(config).run_as_user = Some(v1::Int64Value { value: 1000 });
                let pod = it.add(spec);
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
        seen(
            "request: an init container with a hundredth of a CPU",
            &[(
                "prepare; cpu",
                "cni; registry; the node; nothing slow; the kubelet took|the kubelet has made no call|kubelet: ",
                "starting|ok",
            )],
            |it| async move {
                let mut spec = it.idle();
                let work = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
                spec.init = vec![Container::shell("prepare", work).with(throttle)];
                let _pod = it.up(spec).await;
                [it.seen_after(6.0).await]
            },
        ),
        seen(
            "request: a probe with a hundredth of a CPU",
            &[(
                "app; probe; cpu",
                "cni; registry; the node; nothing slow",
                "",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].edit = throttle;
                let work = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
                spec.containers[0].liveness = Some(Probe::exec(work));
                let pod = it.add(spec);
                it.wait(&pod, "failed probes", |done| done.probes_failed >= 2)
                    .await;
                seconds(1.0).await;
                [it.seen().await]
            },
        ),
    ]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    common()
}
