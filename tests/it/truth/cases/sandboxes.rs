//! Sandboxes that die, are replaced, or stay.

use super::super::kubelet::Pod;
use super::super::machine;
use super::super::spec::Container;
use super::super::stage::{Play, seconds};
use super::super::{Case, case};
use crate::prelude::*;

/// The first process of a sandbox or container.
fn end_process(it: &Play, id: &str) {
    kill(machine::pid_of(&it.stage.name, id), Signal::SIGKILL).expect("kill");
}

async fn up(it: &Play) -> Pod {
    let pod = it.up(it.idle()).await;
    seconds(1.0).await;
    pod
}

pub(in super::super) fn all() -> Vec<Case> {
    vec![
        case(
            "sandbox: dies and is replaced",
            "sandbox; replaced|died|ended|gone|new sandbox|attempt 1",
            "cni; registry; runc; cannot; failed; no container was started",
            |it| async move {
                let pod = up(&it).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                end_process(&it, &sandbox);
                it.wait(&pod, "another start", |done| done.started == 2)
                    .await;
                it.line().await
            },
        ),
        case(
            "sandbox: dies before it has a container",
            "sandbox was replaced; died; pause; 137|SIGKILL",
            "cni; registry; runc; nothing slow",
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(2);
                let pod = it.with_sandbox(spec).await;
                let first = pod.done().sandbox.expect("a sandbox");
                end_process(&it, &first);
                let is_new = |sandbox: &String| *sandbox != first;
                it.wait(&pod, "a new one", |done| {
                    done.sandbox.as_ref().is_some_and(is_new)
                })
                .await;
                it.line().await
            },
        ),
        case(
            "sandbox: all new after a restart of the node",
            "up after",
            "cni; registry; fail; cannot; no container was started; the kubelet took|the kubelet has made no call|kubelet: ; side ended|side keeps",
            |it| async move {
                let mut spec = it.spec(vec![Container::idle("app"), Container::idle("side")]);
                spec.attempts = (2, 5);
                it.tell(spec, "its start", |done| done.started == 2).await
            },
        ),
        case(
            "sandbox: container killed from outside",
            "app; 137|SIGKILL",
            "cni; registry; runc; cannot; memory; probe; keeps",
            |it| async move {
                let pod = up(&it).await;
                let id = pod.done().containers["app"].clone();
                end_process(&it, &id);
                it.wait(&pod, "another start", |done| done.started == 2)
                    .await;
                it.line().await
            },
        ),
        case(
            "sandbox: past its deadline in the OCI runtime",
            "RunPodSandbox; deadline of 4; OCI runtime runc|runc",
            "cni plugin; registry; nothing slow",
            |it| async move {
                let mut spec = it.idle();
                spec.handler = "hungrunc";
                spec.sandbox_deadline = Duration::from_secs(4);
                it.tell(spec, "the deadline", |done| done.failed >= 1).await
            },
        ),
        case(
            "sandbox: the name is reserved after a deadline",
            "network; deadline of 3; lazy-bridge; reserved",
            "registry; nothing slow",
            |it| async move {
                let mut spec = it.idle();
                spec.handler = "lazynet";
                spec.sandbox_deadline = Duration::from_secs(3);
                it.tell(spec, "tries", |done| done.failed >= 2).await
            },
        ),
    ]
}
