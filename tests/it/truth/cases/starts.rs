//! Starts with init containers, sidecars and hooks, and pods that never get so far.

use super::super::score::Seen;
use super::super::spec::{Container, PodSpec, Restart, linux};
use super::super::stage::{Play, seconds};
use super::super::{Case, seen};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str =
    "cni; registry; runc; the kubelet took|the kubelet has made no call|kubelet: ; cannot";

fn after(it: &Play, init: Vec<Container>) -> PodSpec {
    let mut spec = it.idle();
    spec.init = init;
    spec.is_written_down = true;
    spec
}

/// A pod with a directory that its containers have as `/log`.
fn with_log(it: &Play, mut spec: PodSpec) -> PodSpec {
    let logs = it.stage.root.join(format!("{}-log", it.pod));
    fs::create_dir_all(&logs).expect("dir");
    spec.volume = Some((logs, "/log"));
    spec
}

/// A sidecar that is ready after some seconds.
fn sidecar() -> Container {
    Container {
        is_sidecar: true,
        startup: Some("[ -e /ready ]"),
        ..Container::shell(
            "proxy",
            "sleep 4; touch /ready; trap 'exit 0' TERM; sleep 100000 & wait",
        )
    }
}

/// What both runtimes have.
pub(in super::super) fn common() -> Vec<Case> {
    vec![
        seen(
            "start: an init container fails twice and heals",
            &[
                (
                    "mig",
                    "cni; registry; runc; the kubelet took|the kubelet has made no call|kubelet: ; nothing slow; app keeps|app ended|app was|app cannot",
                    "",
                ),
                ("mig; twice|2 times; exit code 7; app; up", OTHERS, "ok"),
            ],
            |it| async move {
                let heals =
                    "[ -e /log/2 ] && exit 0; [ -e /log/1 ] && touch /log/2; touch /log/1; exit 7";
                let spec = with_log(&it, after(&it, vec![Container::shell("mig", heals)]));
                let pod = it.add(spec);
                it.wait(&pod, "failures", |done| done.exited >= 2).await;
                let first = it.seen().await;
                it.wait(&pod, "app", |done| done.containers.contains_key("app"))
                    .await;
                it.begun().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "start: a sidecar whose startup probe takes long",
            &[
                (
                    "proxy",
                    "cni; registry; runc; between CRI calls; nothing slow; cannot",
                    "starting|failing",
                ),
                (
                    "proxy; ~3..6",
                    "cni; registry; runc; between CRI calls; nothing slow; cannot",
                    "ok",
                ),
            ],
            |it| async move {
                let pod = it.up(after(&it, vec![sidecar()])).await;
                let first = it.seen_after(2.0).await;
                it.wait(&pod, "app", |done| done.started == 2).await;
                it.begun().await;
                [first, it.seen().await]
            },
        ),
        seen(
            "start: deleted right after its postStart hook",
            &[(
                "the pod was stopped by the kubelet",
                "preStop; cni; registry; runc; cannot",
                "gone|stopped|stopping",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].post_start = Some("sleep 1");
                let pod = it.up(spec).await;
                seconds(1.2).await;
                pod.gone().await;
                [it.seen().await]
            },
        ),
        seen(
            "start: an ephemeral container soon after it",
            &[(
                "up after; ~0..2",
                "debugger; the kubelet took|the kubelet has made no call|kubelet: ; cni; registry; runc",
                "ok",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.is_written_down = true;
                spec.ephemeral = Some(Container::idle("debugger"));
                let pod = it.up(spec).await;
                seconds(1.5).await;
                pod.debug();
                it.wait(&pod, "the debugger", |done| done.started == 2)
                    .await;
                it.begun().await;
                [it.seen().await]
            },
        ),
        seen(
            "start: deleted before its container was started",
            &[(
                "prepare",
                "nothing slow; up after; cni; registry; runc",
                "gone|stopped|stopping",
            )],
            |it| async move {
                let pod = it.up(after(&it, vec![Container::idle("prepare")])).await;
                seconds(2.0).await;
                pod.gone().await;
                [it.seen_after(1.0).await]
            },
        ),
        seen(
            "start: a job that is done and then deleted",
            &[
                (
                    "app; exit code 0|completed",
                    "cni; registry; runc; nothing slow; fail; keeps",
                    "completed|ok|gone",
                ),
                (
                    "app; exit code 0|completed",
                    "cni; registry; runc; nothing slow; fail; keeps",
                    "completed|gone|stopped",
                ),
            ],
            |it| async move {
                let mut spec = it.spec(vec![Container::shell("app", "exit 0")]);
                spec.restart = Restart::Never;
                let pod = it.add(spec);
                it.wait(&pod, "its end", |done| done.exited >= 1).await;
                let first = it.seen_after(1.0).await;
                pod.gone().await;
                [first, it.seen_after(1.0).await]
            },
        ),
        seen(
            "start: lack of memory, and it is not started again",
            &[(
                "app; memory|OOM; 137",
                "cni; registry; runc; nothing slow; keeps",
                "failed",
            )],
            |it| async move {
                let hungry = "sleep 1; x=1234567890; while :; do x=$x$x; done";
                let mut spec = it.spec(vec![Container::shell("app", hungry).with(|config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    resources.memory_limit_in_bytes = 16 << 20;
                })]);
                spec.restart = Restart::Never;
                let pod = it.add(spec);
                it.wait(&pod, "its end", |done| done.exited >= 1).await;
                [it.seen_after(2.0).await]
            },
        ),
        seen(
            "start: a pod that waits for its volumes",
            &[(
                "volume",
                "cni; registry; runc; nothing slow",
                "waiting|starting",
            )],
            |it| async move {
                let spec = it.idle();
                let uid = spec.uid();
                it.stage.kubelet.admit(&spec);
                // The kubelet has not said its name yet.
                let row = until("a row", || it.listed(&uid)).await;
                [Seen {
                    line: row["reason"].as_str().unwrap_or_default().to_owned(),
                    state: row["state"].as_str().unwrap_or_default().to_owned(),
                }]
            },
        ),
    ]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        seen(
            "start: a slow init container before a quick app",
            &[(
                "prepare; ~2.5..5",
                "cni; registry; runc; the kubelet took|the kubelet has made no call|kubelet: ; cannot; nothing slow",
                "ok",
            )],
            |it| async move {
                let pod = it
                    .up(after(&it, vec![Container::shell("prepare", "sleep 3")]))
                    .await;
                it.wait(&pod, "app", |done| done.started == 2).await;
                it.begun().await;
                [it.seen().await]
            },
        ),
        seen(
            "start: a slow postStart hook",
            &[(
                "postStart; app; ~2.5..5",
                "cni; registry; runc; preStop; cannot",
                "ok",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].post_start = Some("sleep 3");
                let _pod = it.up(spec).await;
                it.begun().await;
                [it.seen().await]
            },
        ),
        seen(
            "start: a preStop hook right after it",
            &[(
                "preStop; app; ~2.5..5",
                "cni; registry; runc; postStart; cannot; nothing slow",
                "gone|stopped",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].post_start = Some("true");
                spec.containers[0].pre_stop = Some("sleep 3");
                let pod = it.up(spec).await;
                seconds(0.5).await;
                pod.gone().await;
                [it.seen().await]
            },
        ),
        seen(
            "start: what is said at its end stays",
            &[("the same", "changed", "")],
            |it| async move {
                let mut spec = it.idle();
                spec.handler = "slowrunc";
                let _pod = it.up(spec).await;
                it.begun().await;
                let first = it.seen().await;
                for n in 0..3 {
                    let name = format!("{}--other-{n}", it.pod);
                    let _other = it.add(PodSpec::new(&name, vec![Container::idle("app")]));
                    seconds(1.5).await;
                }
                let second = it.seen().await;
                let said = match first.line == second.line {
                    true => "the same".to_owned(),
                    false => format!("changed: {first}, then {second}"),
                };
                [Seen::from(said)]
            },
        ),
    ]);
    all
}
