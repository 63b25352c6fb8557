//! What only events of the runtime tell: the CRI has no word for it, or no call asks.

use super::super::kubelet::Pod;
use super::super::machine;
use super::super::spec::{Container, Restart, linux};
use super::super::stage::{Play, Runtime, seconds};
use super::super::{Case, case};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str = "cni; registry; runc; nothing slow; cannot";

/// A child of its shell that takes all the memory, and what follows.
fn hungry(then: &str) -> Container {
    let script = format!("sleep 1; (x=1234567890; while :; do x=$x$x; done); {then}");
    Container::shell("app", &script).with(|config| {
        let resources = linux(config).resources.get_or_insert_default();
        resources.memory_limit_in_bytes = 16 << 20;
    })
}

async fn up(it: &Play, container: Container) -> Pod {
    it.up(it.spec(vec![container])).await
}

/// containerd needs that to tell of OOM kills.
async fn watched(it: &Play) {
    if matches!(it.stage.runtime, Runtime::Containerd(..)) {
        crate::harness::hierarchies::all_mounted().await;
    }
}

/// What both runtimes tell.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "event: a child is killed for lack of memory",
            "a process of app was OOM-killed",
            "cni; registry; runc; cannot; ended; exit code",
            |it| async move {
                watched(&it).await;
                let _pod = up(&it, hungry("trap 'exit 0' TERM; sleep 100000 & wait")).await;
                it.line_with("memory").await
            },
        ),
        case(
            "event: a child is killed for lack of memory, then the container ends",
            "app; exit code 5; after one of its processes was OOM-killed",
            "cni; registry; runc; nothing slow; was killed; is killed",
            |it| async move {
                watched(&it).await;
                let mut spec = it.spec(vec![hungry("sleep 2; exit 5")]);
                spec.restart = Restart::Never;
                it.tell(spec, "its end", |done| done.exited >= 1).await
            },
        ),
        case(
            "event: a container ends while the kubelet is away",
            "app; exit code 6",
            OTHERS,
            |it| async move {
                drop(up(&it, Container::shell("app", "sleep 3; exit 6")).await);
                it.line_with("exit code").await
            },
        ),
    ]
}

/// With the built-in runtime, whose sandboxes have no pause.
pub(super) fn own() -> Vec<Case> {
    vec![case(
        "event: the shim dies while the kubelet is away",
        "app; did not see how; shim died",
        OTHERS,
        |it| async move {
            let pod = up(&it, Container::idle("app")).await;
            let sandbox = pod.done().sandbox.expect("a sandbox");
            drop(pod);
            seconds(1.0).await;
            let shim = machine::own_shim_of(&it.stage.name, &sandbox);
            kill(shim, Signal::SIGKILL).expect("kill");
            it.line_with("exit code").await
        },
    )]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        case(
            "event: the sandbox dies while the kubelet is away",
            "the sandbox died; pause; 137|SIGKILL",
            OTHERS,
            |it| async move {
                let pod = up(&it, Container::idle("app")).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                drop(pod);
                seconds(1.0).await;
                kill(machine::pid_of(&it.stage.name, &sandbox), Signal::SIGKILL).expect("kill");
                it.line_with("sandbox").await
            },
        ),
        case(
            "event: why the sandbox was replaced",
            "sandbox was replaced; pause; 137|SIGKILL",
            "cni; registry; runc; cannot; not usable",
            |it| async move {
                let pod = up(&it, Container::idle("app")).await;
                seconds(1.0).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                kill(machine::pid_of(&it.stage.name, &sandbox), Signal::SIGKILL).expect("kill");
                it.wait(&pod, "another start", |done| done.started == 2)
                    .await;
                it.line().await
            },
        ),
    ]);
    all
}
