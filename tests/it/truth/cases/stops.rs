//! Containers that are asked to stop, and how long that takes.

use super::super::spec::{Container, PodSpec, Restart};
use super::super::stage::Play;
use super::super::{Case, case};

fn app(it: &Play, script: &str) -> PodSpec {
    it.spec(vec![Container::shell("app", script)])
}

pub(super) fn all() -> Vec<Case> {
    vec![
        case(
            "container: slow preStop",
            "preStop; app; ~2.8..5",
            "cni; registry; runc; nothing slow; postStart; SIGKILL; cannot",
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].pre_stop = Some("sleep 3");
                let pod = it.up(spec).await;
                it.gone_after(1.0, pod).await
            },
        ),
        case(
            "container: grace period used up",
            "app; ~2.8..5; SIGKILL|killed; grace|did not end when asked",
            "cni; registry; runc; nothing slow; crash; cannot",
            |it| async move {
                let mut spec = app(&it, "trap '' TERM; while :; do sleep 1; done");
                spec.grace = 3;
                let pod = it.up(spec).await;
                it.gone_after(1.0, pod).await
            },
        ),
        case(
            "container: deleted with a shorter grace period",
            "the pod was stopped by; 2 s of grace instead of 30 s; app; SIGKILL",
            "cni; registry; runc; nothing slow; crash; probe",
            |it| async move {
                let mut spec = app(&it, "trap '' TERM; while :; do sleep 1; done");
                spec.last_grace = Some(1);
                let pod = it.up(spec).await;
                it.gone_after(1.0, pod).await
            },
        ),
        case(
            "container: slow to end",
            "app; ~2.8..5; end|stop",
            "cni; registry; runc; nothing slow; crash; cannot; SIGKILL",
            |it| async move {
                let slow = "trap 'sleep 3; exit 0' TERM; sleep 100000 & wait";
                let pod = it.up(app(&it, slow)).await;
                it.gone_after(1.0, pod).await
            },
        ),
        case(
            "container: a job that failed",
            "app; exit code 2|exit 2",
            "cni; registry; runc; nothing slow; keeps; cannot",
            |it| async move {
                let mut spec = app(&it, "sleep 1; exit 2");
                spec.restart = Restart::Never;
                it.tell(spec, "its end", |done| done.exited >= 1).await
            },
        ),
    ]
}
