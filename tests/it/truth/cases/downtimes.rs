//! Parts of the node that are away for a while, criscope among them; played one after the other.

use super::super::kubelet::Pod;
use super::super::score::Seen;
use super::super::spec::Container;
use super::super::stage::{Play, seconds};
use super::super::{Case, seen};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str = "cni; runc; nothing slow; held up by; cannot pull";

/// A pod whose image arrives for half a minute.
async fn pulling(it: &Play) -> Pod {
    let stalled = Container::of("app", &it.image("stalled:1"));
    let pod = it.with_sandbox(it.spec(vec![stalled])).await;
    seconds(2.0).await;
    pod
}

/// criscope is killed, and is away for some seconds.
async fn restart_criscope(it: &Play, away: f64) {
    it.stage.proxy().kill();
    seconds(away).await;
    it.stage.proxy().start_again().await;
}

async fn restart_containerd(it: &Play, away: f64) {
    it.stage.lock().await.kill();
    seconds(away).await;
    it.stage.lock().await.start().await;
}

/// What is seen some seconds after the end of the kubelet, which comes back then.
async fn without_kubelet(it: &Play, away: f64) -> Seen {
    it.stage.relay.end();
    let seen = it.seen_after(away).await;
    it.stage.relay.start().await;
    seen
}

pub(in super::super) fn all() -> Vec<Case> {
    vec![
        seen(
            "downtime: criscope is killed during a pull",
            &[(
                "criscope was down|criscope was away; stalled:1",
                OTHERS,
                "starting|failing",
            )],
            |it| async move {
                let _pod = pulling(&it).await;
                restart_criscope(&it, 4.0).await;
                [it.seen_after(1.0).await]
            },
        ),
        seen(
            "downtime: criscope is killed between two calls",
            &[
                (
                    "in progress|criscope was down|criscope was away",
                    OTHERS,
                    "starting|ok",
                ),
                ("criscope was down|criscope was away", OTHERS, "ok"),
            ],
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(6);
                let pod = it.with_sandbox(spec).await;
                restart_criscope(&it, 3.0).await;
                let first = it.seen().await;
                it.wait(&pod, "its start", |done| done.started >= 1).await;
                it.begun().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "downtime: criscope is killed while a container is stopped",
            &[(
                "criscope was down|criscope was away; app",
                "cni; runc; nothing slow; crash; probe",
                "stopping|gone|stopped",
            )],
            |it| async move {
                let mut spec = it.spec(vec![Container::shell(
                    "app",
                    "trap 'sleep 6; exit 0' TERM; sleep 100000 & wait",
                )]);
                spec.grace = 20;
                let pod = it.up(spec).await;
                seconds(1.0).await;
                pod.delete();
                seconds(2.0).await;
                restart_criscope(&it, 2.5).await;
                [it.seen_after(1.0).await]
            },
        ),
        seen(
            "downtime: criscope is killed during a crash loop",
            &[(
                "app; keeps; exit code 3",
                "cni; registry; runc; nothing slow",
                "crash_loop",
            )],
            |it| async move {
                let pod = it.add(it.spec(vec![Container::shell("app", "sleep 1; exit 3")]));
                it.wait(&pod, "ends", |done| done.exited >= 2).await;
                restart_criscope(&it, 2.0).await;
                it.wait(&pod, "ends", |done| done.exited >= 4).await;
                [it.seen().await]
            },
        ),
        seen(
            "downtime: criscope is killed after a start",
            &[
                (
                    "up after",
                    "cni; registry; runc; criscope was; the kubelet took|the kubelet has made no call|kubelet: ",
                    "ok",
                ),
                (
                    "up after",
                    "cni; registry; runc; criscope was; the kubelet took|the kubelet has made no call|kubelet: ",
                    "ok",
                ),
            ],
            |it| async move {
                let _pod = it.up(it.idle()).await;
                it.begun().await;
                let first = it.seen().await;
                restart_criscope(&it, 2.0).await;
                [first, it.seen_after(1.0).await]
            },
        ),
        seen(
            "downtime: containerd is killed during a pull",
            &[(
                "containerd|runtime; stalled:1",
                "cni; runc; nothing slow; held up by; not found",
                "starting|failing",
            )],
            |it| async move {
                let pod = pulling(&it).await;
                let failed = pod.done().failed;
                restart_containerd(&it, 3.0).await;
                it.wait(&pod, "the failure", |done| done.failed > failed)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "downtime: containerd is killed after a start",
            &[(
                "up after|containerd|runtime",
                "cni; registry; runc; cannot; died",
                "ok",
            )],
            |it| async move {
                let _pod = it.up(it.idle()).await;
                it.begun().await;
                restart_containerd(&it, 3.0).await;
                [it.seen_after(2.0).await]
            },
        ),
        seen(
            "downtime: the kubelet ends during a pull",
            &[(
                "kubelet; stalled:1",
                "cni; runc; nothing slow; held up by; cannot pull; deleted",
                "starting|failing|failed",
            )],
            |it| async move {
                let _pod = pulling(&it).await;
                [without_kubelet(&it, 4.0).await]
            },
        ),
        seen(
            "downtime: the kubelet ends between two calls",
            &[(
                "kubelet; away|gone|not connected|no kubelet|ended|stopped",
                "cni; runc; nothing slow; held up by; deleted",
                "starting|failing",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(30);
                let _pod = it.with_sandbox(spec).await;
                [without_kubelet(&it, 12.0).await]
            },
        ),
        seen(
            "downtime: the kubelet ends while it stops a pod",
            &[(
                "kubelet; app",
                "cni; registry; runc; nothing slow; crash; probe; held up by",
                "stopping|stopped|gone|failing|failed",
            )],
            |it| async move {
                let mut spec = it.spec(vec![Container::shell(
                    "app",
                    "trap 'sleep 8; exit 0' TERM; sleep 100000 & wait",
                )]);
                spec.grace = 20;
                let pod = it.up(spec).await;
                seconds(1.0).await;
                pod.delete();
                seconds(1.0).await;
                [without_kubelet(&it, 4.0).await]
            },
        ),
        seen(
            "downtime: criscope and containerd are killed together",
            &[(
                "criscope|containerd|runtime; was down|was away|unavailable|not answer",
                "cni; runc; nothing slow; held up by",
                "starting|failing|ok",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(5);
                let pod = it.with_sandbox(spec).await;
                it.stage.proxy().kill();
                restart_containerd(&it, 3.0).await;
                it.stage.proxy().start_again().await;
                it.wait(&pod, "its start", |done| done.started >= 1).await;
                [it.seen_after(1.0).await]
            },
        ),
    ]
}
