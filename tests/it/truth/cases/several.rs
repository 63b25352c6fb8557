//! Two faults of one pod: the line names the worst, and then the other.

use super::super::spec::{Container, PodSpec, Probe, Restart, linux};
use super::super::stage::Play;
use super::super::{Case, seen};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str = "cni; runc; nothing slow";

/// States of a pod in trouble.
const TROUBLE: &str = "failing|crash_loop|failed";

fn side(script: &str) -> Container {
    Container::shell("side", script)
}

fn pair(it: &Play, app: &str, second: Container) -> PodSpec {
    it.spec(vec![Container::shell("app", app), second])
}

/// A container that soon needs more than its limit.
fn hungry(name: &'static str, then: &str) -> Container {
    let script = format!("sleep 1; (x=1234567890; while :; do x=$x$x; done); {then}");
    Container::shell(name, &script).with(|config| {
        let resources = linux(config).resources.get_or_insert_default();
        resources.memory_limit_in_bytes = 16 << 20;
    })
}

/// What both runtimes have.
pub(in super::super) fn common() -> Vec<Case> {
    vec![
        seen(
            "two: a crash loop beside a missing image",
            &[("app; exit code 3; and also; no/such:1", OTHERS, TROUBLE)],
            |it| async move {
                let missing = Container::of("side", &it.image("no/such:1"));
                let pod = it.add(pair(&it, "sleep 1; exit 3", missing));
                it.wait(&pod, "both", |done| done.exited >= 3 && done.failed >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "two: containers that end in two ways",
            &[("app; exit code 3; side; exit code 4", OTHERS, TROUBLE)],
            |it| async move {
                let pod = it.add(pair(&it, "sleep 1; exit 3", side("sleep 1; exit 4")));
                it.wait(&pod, "ends", |done| done.exited >= 6).await;
                [it.seen().await]
            },
        ),
        seen(
            "two: a failing probe beside a crash loop",
            &[("app; exit code 3; side; probe", OTHERS, TROUBLE)],
            |it| async move {
                let mut probed = Container::idle("side");
                probed.liveness = Some(Probe::exec("exit 9"));
                let pod = it.add(pair(&it, "sleep 1; exit 3", probed));
                it.wait(&pod, "both", |done| done.exited >= 3 && done.killed >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "two: a missing command beside a crash loop",
            &[("app; exit code 3; side; /no/such", OTHERS, TROUBLE)],
            |it| async move {
                let mut missing = Container::idle("side");
                missing.command = vec!["/no/such".to_owned()];
                let pod = it.add(pair(&it, "sleep 1; exit 3", missing));
                // A container that could not be started has ended too.
                it.wait(&pod, "both", |done| done.exited >= 5 && done.failed >= 2)
                    .await;
                [it.seen().await]
            },
        ),
    ]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        seen(
            "two: kinds of ends in one loop",
            &[("app; keeps; exit code 3; exit code 4", OTHERS, "crash_loop")],
            |it| async move {
                let turn = "[ -e /log/odd ] && { rm /log/odd; exit 4; }; touch /log/odd; exit 3";
                let mut spec = it.spec(vec![Container::shell("app", turn)]);
                let logs = it.stage.root.join(format!("{}-turns", it.pod));
                fs::create_dir_all(&logs).expect("dir");
                spec.volume = Some((logs, "/log"));
                let pod = it.add(spec);
                it.wait(&pod, "ends", |done| done.exited >= 4).await;
                [it.seen().await]
            },
        ),
        seen(
            "two: images that cannot pull for two reasons",
            &[("no/such:1; foreign:1", OTHERS, "failing")],
            |it| async move {
                let images = [("app", "no/such:1"), ("side", "foreign:1")];
                let spec = it.spec(
                    images
                        .map(|(name, image)| Container::of(name, &it.image(image)))
                        .into(),
                );
                let pod = it.add(spec);
                it.wait(&pod, "failures", |done| done.failed >= 4).await;
                [it.seen().await]
            },
        ),
        seen(
            "two: lack of memory beside a failing probe",
            &[("app; OOM-killed; side; probe", OTHERS, TROUBLE)],
            |it| async move {
                crate::harness::hierarchies::all_mounted().await;
                let mut probed = Container::idle("side");
                probed.liveness = Some(Probe::exec("exit 9"));
                let pod = it.add(it.spec(vec![hungry("app", "exit 1"), probed]));
                it.wait(&pod, "both", |done| done.exited >= 3 && done.killed >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "two: a worker is killed for lack of memory before each kill by a probe",
            &[("app; probe; OOM-killed", OTHERS, TROUBLE)],
            |it| async move {
                crate::harness::hierarchies::all_mounted().await;
                let mut probed = hungry(
                    "app",
                    "touch /tmp-gone; trap 'exit 0' TERM; sleep 100000 & wait",
                );
                probed.liveness = Some(Probe::exec("[ ! -e /tmp-gone ]"));
                let pod = it.add(it.spec(vec![probed]));
                it.wait(&pod, "kills", |done| done.killed >= 2 && done.started >= 3)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "two: a slow image, then a crash loop",
            &[(
                "app; keeps; exit code 5",
                "cni; runc; nothing slow; cannot",
                "crash_loop",
            )],
            |it| async move {
                let slow = Container {
                    image: it.image("slow-loop:1"),
                    ..Container::shell("app", "sleep 1; exit 5")
                };
                let pod = it.add(it.spec(vec![slow]));
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
        seen(
            "two: a failing probe and a preStop hook that does not end",
            &[(
                "app; liveness; exit code 7; preStop",
                "cni; registry; runc; nothing slow",
                "",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.grace = 4;
                spec.containers[0].liveness = Some(Probe::exec("exit 7"));
                spec.containers[0].pre_stop = Some("sleep 60");
                let pod = it.add(spec);
                it.wait(&pod, "its probe", |done| done.probes_failed >= 2)
                    .await;
                [it.seen_after(2.5).await]
            },
        ),
        seen(
            "two: jobs of a pod, one done and one failed",
            &[(
                "side; exit code 4",
                "cni; registry; runc; nothing slow; keeps",
                "failed",
            )],
            |it| async move {
                let mut spec = pair(&it, "sleep 1", side("sleep 1; exit 4"));
                spec.restart = Restart::Never;
                let pod = it.add(spec);
                it.wait(&pod, "ends", |done| done.exited >= 2).await;
                [it.seen_after(1.0).await]
            },
        ),
    ]);
    all
}
