//! Pods with nothing to blame.

use super::super::spec::{Container, Restart};
use super::super::{Case, case};

/// Words that the line about a healthy pod must not have.
const BLAME: &str = "cni; registry; runc; cannot; fail; the kubelet took|the kubelet has made no call|kubelet: ; crash; keeps";

/// What both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case("well: a quick start", "up after", BLAME, |it| async move {
            let spec = it.idle();
            it.tell_start(spec).await
        }),
        case(
            "well: an ordered stop",
            "the pod was stopped by; until app ended; gone after",
            BLAME,
            |it| async move {
                let pod = it.up(it.idle()).await;
                it.gone_after(1.0, pod).await
            },
        ),
    ]
}

pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        case(
            "well: a job that completed",
            "completed|exit code 0|done|ended",
            BLAME,
            |it| async move {
                let mut spec = it.spec(vec![Container::shell("app", "sleep 1")]);
                spec.restart = Restart::OnFailure;
                it.tell(spec, "its end", |done| done.exited >= 1).await
            },
        ),
        case(
            "well: init containers and two containers",
            "up after",
            BLAME,
            |it| async move {
                let mut spec = it.spec(vec![Container::idle("app"), Container::idle("side")]);
                spec.init = vec![Container::shell("prepare", "exit 0")];
                it.tell(spec, "its start", |done| done.started == 3).await
            },
        ),
        case(
            "well: a stop long after the end",
            "the pod was stopped by; until app ended; gone after",
            BLAME,
            |it| async move {
                // The pod is down at once; the kubelet clears up later.
                let mut spec = it.idle();
                spec.clears_up_after = std::time::Duration::from_secs(4);
                let pod = it.up(spec).await;
                it.gone_after(1.0, pod).await
            },
        ),
    ]);
    all
}
