//! Faults of the runtime and of the node, under which every pod suffers; played one after the other.

use futures_util::future::join_all;

use super::super::kubelet::Pod;
use super::super::machine;
use super::super::spec::{Container, PodSpec};
use super::super::stage::{Play, seconds};
use super::super::{Case, case};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str =
    "cni; registry; runc; the kubelet took|the kubelet has made no call|kubelet: ; nothing slow";

async fn pid(it: &Play) -> Pid {
    let pid = it.stage.lock().await.pid();
    Pid::from_raw(pid.try_into().expect("pid"))
}

async fn stop(it: &Play) {
    halt(pid(it).await);
}

async fn go_on(it: &Play) {
    kill(pid(it).await, Signal::SIGCONT).expect("SIGCONT");
}

/// A pod whose kubelet waits for so many seconds once it has its sandbox.
async fn paused(it: &Play, pause: u64) -> Pod {
    let mut spec = it.idle();
    spec.pause = Duration::from_secs(pause);
    it.with_sandbox(spec).await
}

async fn up(it: &Play, grace: i64) -> Pod {
    let mut spec = it.idle();
    spec.grace = grace;
    let pod = it.up(spec).await;
    seconds(1.0).await;
    pod
}

pub(in super::super) fn all() -> Vec<Case> {
    vec![
        case(
            "runtime: disk full while unpacking",
            "large:1; cannot pull; disk is full",
            OTHERS,
            |it| async move {
                let spec = it.spec(vec![Container::of("app", &it.image("large:1"))]);
                it.tell(spec, "two failures", |done| done.failed >= 2).await
            },
        ),
        case(
            "runtime: stopped during a pull",
            "stalled:1; containerd|runtime; SIGSTOP|stopped by|is stopped|frozen|not answer",
            "cni; registry; runc; nothing slow; cannot pull",
            |it| async move {
                let stalled = Container::of("app", &it.image("stalled:1"));
                let _pod = it.with_sandbox(it.spec(vec![stalled])).await;
                seconds(1.5).await;
                stop(&it).await;
                seconds(6.0).await;
                let line = it.line().await;
                go_on(&it).await;
                line
            },
        ),
        case(
            "runtime: stopped between two calls",
            "containerd|runtime; SIGSTOP|stopped by|is stopped|frozen|not answer",
            "cni; registry; runc; nothing slow; has made no call; cannot",
            |it| async move {
                let _pod = paused(&it, 1).await;
                stop(&it).await;
                seconds(7.0).await;
                let line = it.line().await;
                go_on(&it).await;
                line
            },
        ),
        case(
            "runtime: stopped before the first call",
            "containerd|runtime; SIGSTOP|stopped by|is stopped|frozen|not answer",
            "cni; registry; runc; nothing slow; admission",
            |it| async move {
                stop(&it).await;
                seconds(9.0).await;
                go_on(&it).await;
                let mut spec = it.idle();
                spec.seen_ago = Duration::from_secs(8);
                it.tell_start(spec).await
            },
        ),
        case(
            "runtime: killed",
            "containerd|runtime|backend; unavailable|is down|not answer|no connection|away",
            "cni; registry; runc; nothing slow; image; held up by",
            |it| async move {
                let _pod = paused(&it, 1).await;
                it.stage.lock().await.kill();
                it.line_after(6.0).await
            },
        ),
        case(
            "node: no backend and an unknown pod",
            "containerd|runtime|backend; unavailable|is down|not answer|no connection|away",
            "cni; registry; runc",
            |it| async move {
                let line = it.line().await;
                it.stage.lock().await.start().await;
                line
            },
        ),
        case(
            "runtime: restarted during a start",
            "containerd|runtime|backend; unavailable|was down|not answer|restart|away",
            "cni; registry; runc; nothing slow; image",
            |it| async move {
                let pod = paused(&it, 1).await;
                it.stage.lock().await.kill();
                seconds(2.5).await;
                it.stage.lock().await.start().await;
                it.wait(&pod, "its start", |done| done.started >= 1).await;
                it.line().await
            },
        ),
        case(
            "runtime: shim killed",
            "sandbox|shim; replaced|died|ended|gone|killed|new sandbox",
            "cni; registry; nothing slow; no container was started; memory",
            |it| async move {
                let pod = up(&it, 2).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                let shim = machine::shim_of(&it.stage.name, &sandbox);
                kill(shim, Signal::SIGKILL).expect("kill");
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                it.line().await
            },
        ),
        case(
            "runtime: shim stopped",
            // containerd 2 gives the call up after two seconds, and the kubelet tries again.
            "app; StopContainer|stop; shim|SIGSTOP|stopped by|is stopped|frozen; ~2..12",
            "cni; registry; nothing slow; cannot start",
            |it| async move {
                let pod = up(&it, 2).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                let shim = machine::shim_of(&it.stage.name, &sandbox);
                halt(shim);
                pod.delete();
                seconds(7.0).await;
                let line = it.line().await;
                kill(shim, Signal::SIGCONT).expect("continue");
                line
            },
        ),
        case(
            "runtime: frozen cgroup",
            "app; frozen|SIGKILL|grace|did not end when asked; ~2..5",
            "cni; registry; nothing slow; cannot; crash",
            |it| async move {
                // The runtime thaws it to kill it, once the grace period is over.
                let pod = up(&it, 3).await;
                let id = pod.done().containers["app"].clone();
                let (file, [frozen, thawed]) = machine::freezer(&it.stage.name, &id);
                fs::write(&file, frozen).expect("freeze");
                pod.delete();
                seconds(5.0).await;
                let line = it.line().await;
                // It may be gone.
                let _ = fs::write(&file, thawed);
                line
            },
        ),
        case(
            "node: network not ready",
            "NetworkReady|network is not ready|network of the node; cni",
            "registry; runc; image",
            |it| async move {
                let conf = it.stage.root.join("cni/10-test.conflist");
                let away = it.stage.root.join("cni/away");
                fs::rename(&conf, &away).expect("rename");
                // The kubelet asks for the state now and then; it begins no pod.
                seconds(8.0).await;
                let line = it.line().await;
                fs::rename(&away, &conf).expect("rename");
                line
            },
        ),
        case(
            "node: many starts at once",
            "starts at once|pods at once|other starts|pods start|starts at the same time|at the same time; ~1.5..20",
            "cni plugin; registry; cannot; the kubelet took|the kubelet has made no call|kubelet: ; nothing slow",
            |it| async move {
                // The network may just have come back.
                seconds(1.0).await;
                let names: Vec<_> = (0..30).map(|n| format!("{}-{n}", it.pod)).collect();
                let containers = || vec![Container::idle("app"), Container::idle("side")];
                let specs = names.iter().map(|name| PodSpec::new(name, containers()));
                let pods: Vec<_> = specs.map(|spec| it.add(spec)).collect();
                let started = pods
                    .iter()
                    .map(|pod| it.wait(pod, "its start", |done| done.started == 2));
                join_all(started).await;
                seconds(1.0).await;
                it.line_of(&names[29]).await
            },
        ),
    ]
}
