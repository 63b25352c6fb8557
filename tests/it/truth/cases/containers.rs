//! Containers that end, are killed, or do not begin: what the kubelet does with them.

use super::super::spec::{Container, PodSpec, Probe, linux};
use super::super::stage::Play;
use super::super::{Case, case};
use super::{probes, stops};

/// What has nothing to do with it.
const OTHERS: &str = "cni; registry; runc; nothing slow; cannot";

fn app(it: &Play, script: &str) -> PodSpec {
    it.spec(vec![Container::shell("app", script)])
}

/// A container that is started so often.
async fn starts(it: Play, script: &'static str, times: u32) -> String {
    it.tell(app(&it, script), "starts", |done| done.exited >= times)
        .await
}

fn after(it: &Play, init: Vec<Container>) -> PodSpec {
    let mut spec = it.idle();
    spec.init = init;
    spec
}

/// What both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "container: crash loop",
            "app; keeps; exit code 3|exit 3; 3 starts|4 starts|3 times|4 times",
            OTHERS,
            |it| starts(it, "exit 3", 3),
        ),
        case(
            "container: out of memory",
            "app; memory|OOM; 137|16.0 MiB",
            OTHERS,
            |it| async move {
                let hungry = "sleep 1; x=1234567890; while :; do x=$x$x; done";
                let hungry = Container::shell("app", hungry).with(|config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    resources.memory_limit_in_bytes = 16 << 20;
                });
                it.tell(it.spec(vec![hungry]), "ends", |done| done.exited >= 2)
                    .await
            },
        ),
        case(
            "container: init fails",
            "init container prepare|prepare; keeps|failed|fails; exit code 4|exit 4",
            "cni; registry; runc; nothing slow; app keeps|app ended|app was|app cannot",
            |it| async move {
                let spec = after(&it, vec![Container::shell("prepare", "exit 4")]);
                it.tell(spec, "failed init", |done| done.exited >= 3).await
            },
        ),
        case(
            "container: a command that its shell does not find",
            "app; keeps; exit code 127|exit 127; its log",
            OTHERS,
            |it| starts(it, "no-such-program", 3),
        ),
        case(
            "container: one of two fails",
            "app; keeps; exit code 1 |exit code 1,|exit 1",
            "cni; registry; runc; nothing slow; side keeps; cannot",
            |it| async move {
                let crashes = Container::shell("app", "exit 1");
                let spec = it.spec(vec![Container::idle("side"), crashes]);
                it.tell(spec, "ends", |done| done.exited >= 3).await
            },
        ),
        case(
            "container: the second init fails",
            "migrate; keeps|failed|fails; exit code 5|exit 5",
            "cni; registry; runc; nothing slow; app keeps|app ended|app was|app cannot; prepare",
            |it| async move {
                let init = vec![
                    Container::shell("prepare", "exit 0"),
                    Container::shell("migrate", "exit 5"),
                ];
                it.tell(after(&it, init), "failed init", |done| done.exited >= 4)
                    .await
            },
        ),
        case(
            "container: init hangs",
            "prepare; ~2.5..8",
            "cni; registry; runc; nothing slow; cannot; the kubelet took|the kubelet has made no call|kubelet: ",
            |it| async move {
                let spec = after(&it, vec![Container::idle("prepare")]);
                let _pod = it.up(spec).await;
                it.line_after(3.0).await
            },
        ),
        case(
            "container: postStart hangs",
            "postStart; app; ~2.5..8",
            "cni; registry; runc; nothing slow; cannot; preStop",
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].post_start = Some("sleep 1000");
                let _pod = it.up(spec).await;
                it.line_after(3.0).await
            },
        ),
        case(
            "container: preStop hangs past the grace period",
            "preStop; app; ~2.8..8; unfinished|grace|timed out|cancelled",
            "cni; registry; runc; nothing slow; cannot; postStart",
            |it| async move {
                let mut spec = it.idle();
                spec.grace = 3;
                spec.containers[0].pre_stop = Some("sleep 1000");
                let pod = it.up(spec).await;
                it.gone_after(2.5, pod).await
            },
        ),
        case(
            "container: probe kills what ignores SIGTERM",
            "app; probe; exit 8|exit code 8; SIGKILL|is killed",
            OTHERS,
            |it| async move {
                let mut spec = app(&it, "trap '' TERM; while :; do sleep 1; done");
                spec.grace = 2;
                spec.containers[0].liveness = Some(Probe::exec("exit 8"));
                it.tell(spec, "kills", |done| done.killed >= 1 && done.started >= 2)
                    .await
            },
        ),
        case(
            "container: aborts",
            "app; keeps; 134|SIGABRT",
            OTHERS,
            |it| starts(it, "sh -c 'kill -ABRT $$'; exit $?", 3),
        ),
    ]
}

pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend(ends());
    all.extend(begins());
    all.extend(probes::all());
    all.extend(ephemeral());
    all.extend(stops::all());
    all
}

fn ends() -> Vec<Case> {
    vec![
        case(
            "container: ends well and is restarted",
            "app; keeps|again; exit code 0|exit 0|completed; 3 starts|4 starts|3 times|4 times",
            "cni; registry; runc; nothing slow; fail; crash",
            |it| starts(it, "exit 0", 3),
        ),
        case(
            "container: killed by its own signal",
            "app; keeps; 139|SIGSEGV|segmentation",
            OTHERS,
            |it| starts(it, "sh -c 'kill -SEGV $$'; exit $?", 3),
        ),
        case(
            "container: crashed once and is up again",
            "app; exit code 9|exit 9",
            "cni; registry; runc; cannot; keeps",
            |it| async move {
                let once =
                    "[ -e /log/once ] && exec sleep 100000; touch /log/once; sleep 1; exit 9";
                let mut spec = app(&it, once);
                let logs = it.stage.root.join(format!("{}-once", it.pod));
                std::fs::create_dir_all(&logs).expect("dir");
                spec.volume = Some((logs, "/log"));
                it.tell(spec, "the second start", |done| done.started == 2)
                    .await
            },
        ),
        case(
            "container: ended by SIGTERM as asked",
            "the pod was stopped by; app ended with exit code 143 (SIGTERM); gone after",
            "crash; fail; keeps; the kubelet took|the kubelet has made no call|kubelet: ; SIGKILL; grace period|of grace",
            |it| async move {
                let mut spec = app(&it, "exec sleep 100000");
                // The first process ignores signals without a handler.
                spec.containers[0].command = vec![
                    "/bin/sh".to_owned(),
                    "-c".to_owned(),
                    "trap 'exit 143' TERM; sleep 100000 & wait".to_owned(),
                ];
                let pod = it.up(spec).await;
                it.gone_after(2.5, pod).await
            },
        ),
    ]
}

fn begins() -> Vec<Case> {
    vec![
        case(
            "container: init runs for long",
            "init container prepare|prepare; ~3..8; run|init",
            "cni; registry; runc; nothing slow; the kubelet took|the kubelet has made no call|kubelet: ; up after",
            |it| async move {
                let pod = it.add(after(&it, vec![Container::shell("prepare", "sleep 100")]));
                it.wait(&pod, "the init container", |done| done.started == 1)
                    .await;
                it.line_after(4.5).await
            },
        ),
        case(
            "container: init was slow",
            "init container prepare; ~2.5..6",
            "cni; registry; runc; nothing slow; the kubelet took|the kubelet has made no call|kubelet: ",
            |it| async move {
                let spec = after(&it, vec![Container::shell("prepare", "sleep 3")]);
                it.tell(spec, "the app", |done| done.started == 2).await
            },
        ),
        case(
            "container: the second init was slow",
            "migrate; init container; ~2.5..6",
            "cni; registry; runc; nothing slow; the kubelet took|the kubelet has made no call|kubelet: ; init container prepare",
            |it| async move {
                let prepare = Container::shell("prepare", "exit 0");
                let migrate = Container::shell("migrate", "sleep 4");
                let spec = after(&it, vec![prepare, migrate]);
                it.tell(spec, "the app", |done| done.started == 3).await
            },
        ),
        case(
            "container: slow postStart",
            "postStart; app; ~2.8..5",
            "cni; registry; runc; nothing slow; cannot",
            |it| async move {
                let mut spec = it.spec(vec![Container::idle("app"), Container::idle("side")]);
                spec.containers[0].post_start = Some("sleep 3");
                it.tell(spec, "its start", |done| done.started == 2).await
            },
        ),
        case(
            "container: postStart fails",
            "postStart; app; exit code 5|exit 5",
            "cni; registry; runc; nothing slow; liveness",
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].post_start = Some("exit 5");
                it.tell(spec, "kills", |done| done.killed >= 2).await
            },
        ),
    ]
}

/// Containers that are added to a running pod.
fn ephemeral() -> Vec<Case> {
    vec![case(
        "container: one is added and refused beside a crash loop",
        "app; keeps; exit code 3",
        "registry; pulled; debugger; cannot",
        |it| async move {
            let crashes = Container::shell("app", "sleep 1; exit 3");
            let mut spec = it.spec(vec![crashes, Container::idle("side")]);
            spec.ephemeral = Some(Container::of("debugger", &it.image("no/such:1")));
            let pod = it.add(spec);
            // Until then its image could be that of a container of the pod.
            it.begun().await;
            pod.debug();
            it.wait(&pod, "failures and exits", |done| {
                done.failed >= 2 && done.exited >= 3
            })
            .await;
            it.line().await
        },
    )]
}
