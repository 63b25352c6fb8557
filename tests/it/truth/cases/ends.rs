//! Ends of containers and pods: what ended them, and what is said once that is over.

use super::super::spec::{Container, PodSpec, Probe, Restart};
use super::super::stage::{Play, seconds};
use super::super::{Case, seen};

/// What has nothing to do with it.
const OTHERS: &str = "cni; registry; runc; nothing slow; cannot";

fn app(it: &Play, script: &str) -> PodSpec {
    it.spec(vec![Container::shell("app", script)])
}

/// What both runtimes have.
pub(in super::super) fn common() -> Vec<Case> {
    vec![
        seen(
            "end: a program that ends with 137 by itself",
            &[(
                "app; exit code 137",
                "cni; registry; runc; that no CRI call asked for; memory; nothing slow",
                "crash_loop|failed",
            )],
            |it| async move {
                let pod = it.add(app(&it, "sleep 1; exit 137"));
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
        seen(
            "end: deleted in a healthy third run",
            &[
                ("app; exit code 5", "cni; registry; runc; cannot", ""),
                (
                    "the pod was stopped by the kubelet",
                    "keeps; cni; registry; runc",
                    "gone|stopped|stopping",
                ),
            ],
            |it| async move {
                let heals = "[ -e /log/2 ] && { trap 'exit 0' TERM; sleep 100000 & wait; exit 0; }; \
                             [ -e /log/1 ] && touch /log/2; touch /log/1; sleep 1; exit 5";
                let mut spec = app(&it, heals);
                let logs = it.stage.root.join(format!("{}-log", it.pod));
                std::fs::create_dir_all(&logs).expect("dir");
                spec.volume = Some((logs, "/log"));
                let pod = it.add(spec);
                it.wait(&pod, "the third start", |done| done.started >= 3)
                    .await;
                let first = it.seen().await;
                seconds(1.0).await;
                pod.gone().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "end: what ignores SIGTERM, while it is asked and afterwards",
            &[
                (
                    "app; stop",
                    "SIGKILL from another process|that no CRI call asked for; cni; registry; runc; crash; probe",
                    "stopping",
                ),
                (
                    "app; SIGKILL; grace|did not end when asked",
                    "SIGKILL from another process|that no CRI call asked for; cni; registry; runc; crash; probe",
                    "gone|stopped",
                ),
            ],
            |it| async move {
                let mut spec = app(&it, "trap '' TERM; while :; do sleep 1; done");
                spec.grace = 5;
                let pod = it.up(spec).await;
                seconds(1.0).await;
                pod.delete();
                let first = it.seen_after(2.0).await;
                pod.gone().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "end: a job that failed, now and after its deletion",
            &[
                (
                    "app; exit code 3",
                    "keeps; cni; registry; runc; nothing slow",
                    "failed",
                ),
                (
                    "app; exit code 3",
                    "keeps; cni; registry; runc; nothing slow",
                    "failed|gone|stopped",
                ),
            ],
            |it| async move {
                let mut spec = app(&it, "sleep 1; exit 3");
                spec.restart = Restart::Never;
                let pod = it.add(spec);
                it.wait(&pod, "its end", |done| done.exited >= 1).await;
                let first = it.seen_after(1.0).await;
                pod.gone().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "end: a crash loop that is deleted",
            &[
                ("app; keeps; exit code 3", OTHERS, "crash_loop"),
                (
                    "app; kept crashing|stopped by the kubelet|deleted; exit code 3",
                    "cni; registry; runc; nothing slow; cannot; keeps",
                    "gone|stopped|failed",
                ),
            ],
            |it| async move {
                let pod = it.add(app(&it, "exit 3"));
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                let first = it.seen().await;
                pod.gone().await;
                [first, it.seen().await]
            },
        ),
    ]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        seen(
            "end: being deleted after kills by a probe",
            &[
                ("app; probe; exit code 7", OTHERS, ""),
                (
                    "stop",
                    "is killed; cni; registry; runc; nothing slow",
                    "stopping",
                ),
            ],
            |it| async move {
                let mut spec = app(&it, "trap 'sleep 4; exit 0' TERM; sleep 100000 & wait");
                spec.containers[0].liveness = Some(Probe::exec("exit 7"));
                let pod = it.add(spec);
                it.wait(&pod, "kills", |done| done.killed >= 1 && done.started >= 2)
                    .await;
                let first = it.seen().await;
                pod.delete();
                let second = it.seen_after(2.0).await;
                pod.gone().await;
                [first, second]
            },
        ),
        seen(
            "end: deleted while one runs and another is done",
            &[(
                "the pod was stopped by the kubelet",
                "cni; registry; runc; keeps; nothing slow; crash",
                "gone|stopped|stopping",
            )],
            |it| async move {
                let mut spec = it.spec(vec![
                    Container::shell("app", "sleep 2"),
                    Container::idle("side"),
                ]);
                spec.restart = Restart::OnFailure;
                let pod = it.add(spec);
                it.wait(&pod, "one end", |done| {
                    done.started == 2 && done.exited >= 1
                })
                .await;
                seconds(1.0).await;
                pod.gone().await;
                [it.seen().await]
            },
        ),
        seen(
            "end: a kill by a probe takes long",
            &[(
                "app; probe; exit code 7",
                "cni; registry; runc; nothing slow; deleted",
                "",
            )],
            |it| async move {
                let mut spec = app(&it, "trap 'sleep 4; exit 0' TERM; sleep 100000 & wait");
                spec.containers[0].liveness = Some(Probe::exec("exit 7"));
                let pod = it.add(spec);
                it.wait(&pod, "a kill", |done| done.killed >= 1 && done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "end: a program that ends with 143 by itself",
            &[(
                "app; keeps; exit code 143",
                "cni; registry; runc; stopped by; grace; nothing slow",
                "crash_loop",
            )],
            |it| async move {
                let pod = it.add(app(&it, "sleep 1; exit 143"));
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
    ]);
    all
}
