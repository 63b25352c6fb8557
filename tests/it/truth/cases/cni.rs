//! Networks that cannot be set up or taken down, or slowly.

use super::super::spec::PodSpec;
use super::super::stage::{Play, seconds};
use super::super::{Case, case};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str =
    "the kubelet took|the kubelet has made no call|kubelet: ; registry; pulled; runc; nothing slow";

fn of(it: &Play, handler: &'static str) -> PodSpec {
    let mut spec = it.idle();
    spec.handler = handler;
    spec
}

async fn fails(it: Play, handler: &'static str) -> String {
    it.tell(of(&it, handler), "two failures", |done| done.failed >= 2)
        .await
}

/// Failures that both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "cni: no configuration",
            "no network; CNI|config",
            OTHERS,
            |it| fails(it, "nonet"),
        ),
        case(
            "cni: plugin missing",
            "cilium-cni; network; failed to find plugin|not installed|is missing|no such",
            OTHERS,
            |it| fails(it, "absent"),
        ),
        case(
            "cni: addresses exhausted",
            "network; bridge|host-local; no free address; .250",
            OTHERS,
            |it| fails(it, "full"),
        ),
        case(
            "cni: a plugin of the chain fails",
            "network; tuning; no_such_setting",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; plugin bridge; runc; nothing slow",
            |it| fails(it, "chain"),
        ),
        case(
            "cni: plugin is killed",
            "network; killed-bridge; killed",
            OTHERS,
            |it| fails(it, "killednet"),
        ),
        case(
            "cni: plugin panics",
            "network; panicking-bridge|CNI plugin; panic|netplugin failed|exit status 2|exit code 2",
            OTHERS,
            |it| fails(it, "panicnet"),
        ),
        case(
            "cni: plugin repeats its input",
            "network; multus-shim; no free address",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; runc; StdinData; clusterNetwork",
            |it| fails(it, "repeats"),
        ),
        case(
            "cni: agent of the plugin is away",
            "network; flannel; agent; /run/flannel/subnet.env",
            OTHERS,
            |it| fails(it, "agentless"),
        ),
        case(
            "cni: address management missing",
            "network; whereabouts; failed to find plugin|not found|is missing|no such|not installed",
            OTHERS,
            |it| fails(it, "noipam"),
        ),
        case(
            "cni: deleted without a sandbox",
            "deleted; before it had a sandbox; network|cni",
            "registry; runc; nothing slow; no retry",
            |it| async move {
                let pod = it.add(of(&it, "full"));
                it.wait(&pod, "two failures", |done| done.failed >= 2).await;
                seconds(2.0).await;
                pod.gone().await;
                it.line_with("deleted").await
            },
        ),
        case(
            "cni: slow to take down",
            "slow-del-bridge; CNI plugin; ~2.8..8",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; runc; cannot; nothing slow",
            |it| async move {
                let pod = it.up(of(&it, "slowdel")).await;
                it.gone_after(1.0, pod).await
            },
        ),
        case(
            "cni: slow plugin",
            "slow-bridge; CNI plugin; ~2.8..5",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; runc; cannot; sandbox:",
            |it| async move { it.tell_start(of(&it, "slownet")).await },
        ),
        case(
            "cni: plugin hangs",
            "hung-bridge; CNI plugin; ~4..9; 4 min",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; runc; cannot",
            |it| async move {
                let _pod = it.add(of(&it, "hungnet"));
                it.line_after(5.5).await
            },
        ),
    ]
}

pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        case(
            "cni: past the deadline",
            "network; deadline of 4; hung-bridge",
            "registry; runc; nothing slow",
            |it| async move {
                let mut spec = of(&it, "hungnet");
                spec.sandbox_deadline = Duration::from_secs(4);
                it.tell(spec, "two failures", |done| done.failed >= 2).await
            },
        ),
        case(
            "cni: cannot be taken down",
            "network; sticky-bridge; the network controller does not answer; down|stop|DEL",
            "the kubelet took|the kubelet has made no call|kubelet: ; registry; runc; nothing slow; gone after",
            |it| async move {
                let pod = it.up(of(&it, "sticky")).await;
                pod.delete();
                it.wait(&pod, "stops that fail", |done| done.failed >= 2)
                    .await;
                it.line().await
            },
        ),
    ]);
    all
}
