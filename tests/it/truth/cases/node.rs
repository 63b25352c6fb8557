//! What the kubelet does before, between and beside the calls, and what pods do to each other.

use std::sync::atomic::AtomicU32;

use super::super::spec::{Container, PodSpec};
use super::super::stage::seconds;
use super::super::{Case, case};
use crate::prelude::*;

pub(in super::super) fn all() -> Vec<Case> {
    vec![
        case(
            "kubelet: late first call",
            "kubelet; 41; before the first call|before its first call",
            "cni; registry; runc; nothing slow; cannot",
            |it| async move {
                // What precedes criscope is another case.
                it.stage.watched_for(Duration::from_secs(42)).await;
                let mut spec = it.idle();
                spec.seen_ago = Duration::from_secs(41);
                it.tell_start(spec).await
            },
        ),
        case(
            "kubelet: late first call, not all of it watched",
            "kubelet; 7000 s|1h 56m|116 min; before the first call|before its first call; watched",
            "cni; registry; runc; nothing slow; cannot",
            |it| async move {
                it.stage.watched_for(Duration::from_secs(3)).await;
                let mut spec = it.idle();
                spec.seen_ago = Duration::from_secs(7000);
                it.tell_start(spec).await
            },
        ),
        case(
            "kubelet: one pull at a time",
            "one at a time|one image at a time|another pull|waited for the pull; first:1; ~2..5",
            "cni; runc; nothing slow; cannot; went by between CRI calls",
            |it| async move {
                // What an earlier play has pulled is not fetched again.
                static PLAYS: AtomicU32 = AtomicU32::new(0);
                let [first, second] = match PLAYS.fetch_add(1, Ordering::Relaxed) {
                    0 => ["first:1", "second:1"],
                    _ => ["again-first:1", "again-second:1"],
                };
                let of = |name: &str, image: &str| {
                    let containers = vec![Container::of("app", &it.image(image))];
                    PodSpec {
                        serial_pulls: true,
                        ..PodSpec::new(name, containers)
                    }
                };
                let other = it.add(of(&format!("{}--the-other-pull", it.pod), first));
                it.wait(&other, "the other sandbox", |done| done.sandbox.is_some())
                    .await;
                seconds(0.3).await;
                it.tell_start(of(&it.pod, second)).await
            },
        ),
        case(
            "kubelet: a gap between calls",
            "kubelet; ~2.7..4.5; before|between|after",
            "cni; registry; runc; nothing slow; cannot; pulls",
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(3);
                it.tell_start(spec).await
            },
        ),
        case(
            "kubelet: waits and makes no call",
            "kubelet; no call for; RunPodSandbox",
            "cni; the registry; runc; nothing slow; cannot",
            |it| async move {
                let mut spec = it.idle();
                spec.pause = Duration::from_secs(60);
                let _pod = it.with_sandbox(spec).await;
                it.line_after(6.0).await
            },
        ),
        case(
            "kubelet: deleted during a pull",
            "stalled:1; deleted|stopped|cancelled|broken off|given up; pull",
            "cni; registry; runc; nothing slow; cannot pull",
            |it| async move {
                let pod = it
                    .with_sandbox(it.spec(vec![Container::of("app", &it.image("stalled:1"))]))
                    .await;
                it.gone_after(3.0, pod).await
            },
        ),
        case(
            "node: a pod that is not known",
            "no record|nothing is known|never|not seen; kubelet|RunPodSandbox",
            "cni; registry; runc",
            |it| async move { it.line().await },
        ),
    ]
}
