//! Calls of other programs than the kubelet: a pod's story says who it was, and takes them for no probe, hook or kill of a kubelet.

use super::super::kubelet::Pod;
use super::super::spec::{Container, Probe, Restart};
use super::super::stage::{Play, seconds};
use super::super::{Case, case, seen};
use crate::prelude::*;

/// What a kubelet would have done.
const KUBELET: &str = "cni; registry; runc; probe; preStop; postStart; the kubelet; cannot";

async fn up(it: &Play) -> Pod {
    let pod = it.up(it.idle()).await;
    seconds(1.0).await;
    pod
}

/// A script in the container `app`, by another program. Returns its exit code.
async fn exec(it: &Play, pod: &Pod, script: &str) -> i32 {
    let request = requests::exec_sync(&it.app(pod), requests::shell_command(script), 0);
    let answer = it.stage.nodetool().await.exec_sync(request).await;
    answer.expect("a command").into_inner().exit_code
}

async fn stop_by_nodetool(it: &Play, pod: &Pod) {
    let stopped = it
        .stage
        .nodetool()
        .await
        .stop_container(requests::stop(&it.app(pod), 5))
        .await;
    stopped.expect("stopped");
}

/// What both runtimes have.
pub(in super::super) fn common() -> Vec<Case> {
    vec![
        seen(
            "caller: a failed command and a stop by another program",
            &[("app; stopped by nodetool", KUBELET, "ok|starting")],
            |it| async move {
                let pod = up(&it).await;
                assert_eq!(exec(&it, &pod, "exit 7").await, 7);
                stop_by_nodetool(&it, &pod).await;
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "caller: a long command of another program",
            &[("up after", KUBELET, "ok"), ("up after", KUBELET, "ok")],
            |it| async move {
                let pod = up(&it).await;
                it.begun().await;
                let command = exec(&it, &pod, "sleep 4");
                let (_, while_it_runs) = tokio::join!(command, it.seen_after(2.0));
                [while_it_runs, it.seen().await]
            },
        ),
        seen(
            "caller: a sandbox is stopped by another program",
            &[(
                "sandbox; stopped by nodetool; replaced",
                "cni; registry; runc; not usable; died",
                "ok|starting",
            )],
            |it| async move {
                let pod = up(&it).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                let mut runtime = it.stage.nodetool().await;
                runtime
                    .stop_pod_sandbox(requests::stop_pod(&sandbox))
                    .await
                    .expect("stopped");
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                [it.seen_after(1.0).await]
            },
        ),
        seen(
            "caller: a container is removed by hand",
            &[("app; by crictl", KUBELET, "ok|starting")],
            |it| async move {
                let pod = up(&it).await;
                let (id, mut runtime) = (it.app(&pod), it.stage.crictl().await);
                runtime
                    .stop_container(requests::stop(&id, 0))
                    .await
                    .expect("stopped");
                runtime
                    .remove_container(requests::remove(&id))
                    .await
                    .expect("removed");
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "caller: a sandbox is removed by hand",
            &[(
                "by crictl",
                "cni; registry; runc; not usable; died; nothing slow",
                "ok|starting",
            )],
            |it| async move {
                let pod = up(&it).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                let mut runtime = it.stage.crictl().await;
                runtime
                    .stop_pod_sandbox(requests::stop_pod(&sandbox))
                    .await
                    .expect("stopped");
                runtime
                    .remove_pod_sandbox(requests::remove_pod(&sandbox))
                    .await
                    .expect("removed");
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "caller: stopped by hand and not started again",
            &[(
                "app; stopped by nodetool",
                "cni; registry; runc; probe; nothing slow; the kubelet",
                "stopped|failed|completed|gone",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.restart = Restart::Never;
                let pod = it.up(spec).await;
                seconds(1.0).await;
                stop_by_nodetool(&it, &pod).await;
                [it.seen_after(2.0).await]
            },
        ),
        seen(
            "caller: stopped by hand while the kubelet is away",
            &[(
                "stopped by crictl",
                "cni; registry; runc; kubelet; nothing slow; probe",
                "stopped|gone",
            )],
            |it| async move {
                let pod = up(&it).await;
                let sandbox = pod.done().sandbox.expect("a sandbox");
                drop(pod);
                let mut runtime = it.stage.crictl().await;
                runtime
                    .stop_pod_sandbox(requests::stop_pod(&sandbox))
                    .await
                    .expect("stopped");
                [it.seen_after(2.0).await]
            },
        ),
    ]
}

/// With containerd.
pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        seen(
            "caller: commands of another program beside a failing probe",
            &[(
                "app; probe; exit code 7",
                "cni; registry; runc; exit code 3; nodetool",
                "ok|crash_loop|failing|starting",
            )],
            |it| async move {
                let mut spec = it.idle();
                spec.containers[0].liveness = Some(Probe {
                    period: Duration::from_secs(1),
                    ..Probe::exec("exit 7")
                });
                let pod = it.up(spec).await;
                assert_eq!(exec(&it, &pod, "exit 3").await, 3);
                it.wait(&pod, "a kill", |done| done.killed >= 1 && done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
        seen(
            "caller: commands of another program beside a crash loop",
            &[(
                "app; keeps; exit code 6",
                "cni; registry; runc; exit code 2; probe; nodetool",
                "crash_loop",
            )],
            |it| async move {
                let pod = it
                    .up(it.spec(vec![Container::shell("app", "sleep 1; exit 6")]))
                    .await;
                assert_eq!(exec(&it, &pod, "exit 2").await, 2);
                it.wait(&pod, "ends", |done| done.exited >= 3).await;
                [it.seen().await]
            },
        ),
        case(
            "caller: the same failing command again and again",
            "up after",
            KUBELET,
            |it| async move {
                let pod = up(&it).await;
                it.begun().await;
                for _ in 0..6 {
                    assert_eq!(exec(&it, &pod, "exit 1").await, 1);
                    seconds(0.3).await;
                }
                it.line().await
            },
        ),
        seen(
            "caller: two programs stop a container at the same time",
            &[("app; stopped by; nodetool|crictl", KUBELET, "ok|starting")],
            |it| async move {
                let pod = up(&it).await;
                let id = it.app(&pod);
                let mut crictl = it.stage.crictl().await;
                let (_, other) = tokio::join!(
                    stop_by_nodetool(&it, &pod),
                    crictl.stop_container(requests::stop(&id, 1))
                );
                let _ = other;
                it.wait(&pod, "another start", |done| done.started >= 2)
                    .await;
                [it.seen().await]
            },
        ),
    ]);
    all
}
