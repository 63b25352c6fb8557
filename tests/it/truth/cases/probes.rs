//! Probes that fail, and what the kubelet does then.

use super::super::spec::{Asks, Container, PodSpec, Probe};
use super::super::stage::Play;
use super::super::{Case, case};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str = "cni; registry; runc; nothing slow; cannot";

fn probed(it: &Play, probe: Probe) -> PodSpec {
    let mut spec = it.idle();
    spec.containers[0].liveness = Some(probe);
    spec
}

/// A container with a liveness probe, killed so often.
async fn killed(it: Play, probe: Probe) -> String {
    let spec = probed(&it, probe);
    it.tell(spec, "kills", |done| done.killed >= 2 && done.started >= 3)
        .await
}

/// What both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "container: liveness probe kills",
            "app; liveness|probe; exit 7|exit code 7; twice|2 times|3 times|killed 2",
            OTHERS,
            |it| killed(it, Probe::exec("exit 7")),
        ),
        case(
            "container: preStop is a command, after a liveness probe failed",
            "app; liveness; exit code 7; preStop",
            OTHERS,
            |it| async move {
                let mut spec = probed(&it, Probe::exec("exit 7"));
                spec.containers[0].pre_stop = Some("sleep 3");
                spec.containers.push(Container::idle("side"));
                it.tell(spec, "a kill", |done| done.killed >= 1 && done.started >= 3)
                    .await
            },
        ),
    ]
}

pub(super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend(more());
    all
}

fn more() -> Vec<Case> {
    vec![
        case(
            "container: liveness probe over HTTP kills",
            "app; kubelet; kill|stopp|restart; probe; twice|2 times|3 times",
            "cni; registry; runc; nothing slow; cannot; exit code 7",
            |it| {
                killed(
                    it,
                    Probe {
                        asks: Asks::HttpFailsAfter(Duration::from_secs(2)),
                        ..Probe::exec("")
                    },
                )
            },
        ),
        case(
            "container: liveness probe times out",
            "app; liveness|probe; timed out|timeout|1 s|1.00 s; twice|2 times|3 times|killed 2",
            OTHERS,
            |it| killed(it, Probe::exec("sleep 5")),
        ),
        case(
            "container: readiness probe fails",
            "app; probe; exit 6|exit code 6",
            "cni; registry; runc; cannot; keeps crashing; killed; liveness",
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].readiness = Some(Probe::exec("exit 6"));
                it.tell(spec, "failed probes", |done| done.probes_failed >= 6)
                    .await
            },
        ),
        case(
            "container: preStop runs after a liveness probe failed",
            "app; liveness; exit code 7; preStop; ~1.5..6",
            OTHERS,
            |it| async move {
                let mut spec = probed(&it, Probe::exec("exit 7"));
                spec.containers[0].pre_stop = Some("sleep 9");
                let pod = it.add(spec);
                it.wait(&pod, "its probe", |done| done.probes_failed >= 2)
                    .await;
                it.line_after(2.5).await
            },
        ),
        case(
            "container: preStop outlasts the grace period, after a liveness probe failed",
            "app; liveness; exit code 7",
            OTHERS,
            |it| async move {
                let mut spec = probed(&it, Probe::exec("exit 7"));
                spec.containers[0].pre_stop = Some("sleep 60");
                spec.grace = 4;
                it.tell(spec, "a kill", |done| done.killed >= 1 && done.started >= 2)
                    .await
            },
        ),
        case(
            "container: preStop is no command, after a liveness probe failed",
            "app; liveness; exit code 7",
            OTHERS,
            |it| async move {
                let mut spec = probed(&it, Probe::exec("exit 7"));
                spec.containers[0].pre_stop_sleep = Duration::from_secs(4);
                it.tell(spec, "a kill", |done| done.killed >= 1 && done.started >= 2)
                    .await
            },
        ),
        case(
            "container: two probes alike",
            "app; exec; exit code 7; unknown which",
            "cni; registry; runc; nothing slow; cannot",
            |it| async move {
                let mut spec = probed(&it, Probe::exec("exit 7"));
                spec.containers[0].readiness = Some(Probe::exec("exit 7"));
                it.tell(spec, "a kill", |done| done.killed >= 1 && done.started >= 2)
                    .await
            },
        ),
    ]
}
