//! Statistics of containers, by the shims of criscope and containerd.

use criscope::runtime::shim_client::{Error, Stdio};
use criscope::runtime::stats::task_metrics;

use super::super::pod::{Pod, exit};
use super::{containerd_shims, create, end, pod, signal};
use crate::harness::hierarchies;
use crate::prelude::*;

async fn usage(pod: &Pod, id: &str) -> criscope_linux::cgroup::usage::Usage {
    let metrics = pod.shim.stats(id, PATIENCE).await.expect("an answer");
    let metrics = metrics.expect("metrics");
    let usage = task_metrics::usage(&metrics.type_url, &metrics.value);
    usage.expect("decoded").expect("a usage")
}

/// A pod with a container `a`. Of those that were created while a hierarchy was in use that is not mounted, runc's shim has no metrics.
async fn measured(script: &str) -> (Pod, String) {
    loop {
        hierarchies::all_mounted().await;
        let (pod, sandbox) = pod().await;
        create(&pod, "a", script, pod.logged("a"), Some(64 << 20)).await;
        pod.shim.start(pod.verb("a")).await.expect("start");
        let mut has_all = true;
        for id in [&sandbox, "a"] {
            let metrics = pod.shim.stats(id, PATIENCE).await;
            has_all &= metrics.expect("an answer").is_some();
        }
        if has_all {
            return (pod, sandbox);
        }
        end(pod, &sandbox, &["a"]).await;
    }
}

#[tokio::test]
async fn runcs_shim_reports_the_usage_of_a_container() {
    let script = "x=0; while [ $x -lt 500000 ]; do x=$((x + 1)); done; echo up; exec sleep 1000";
    let (pod, sandbox) = measured(script).await;
    until_true("its work", async || pod.log("a") == ["stdout F up"]).await;
    let used = usage(&pod, "a").await;
    let (cpu, memory) = (used.cpu.expect("cpu"), used.memory.expect("memory"));
    assert!(cpu.usage > 0);
    assert_eq!(memory.limit, Some(64 << 20));
    assert!(memory.working_set > 0 && memory.working_set <= memory.usage);
    assert_eq!(used.pids.expect("pids").current, 1);
    let idle = usage(&pod, &sandbox).await;
    assert!(
        idle.cpu.is_some_and(|idle| idle.usage < cpu.usage),
        "each its own"
    );
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn a_container_that_does_not_run_has_no_usage() {
    let (pod, sandbox) = pod().await;
    let mut events = pod.shim.events();
    create(&pod, "a", "sleep 1000", Stdio::default(), None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    signal(&pod, ("a", ""), Signal::SIGKILL)
        .await
        .expect("kill");
    exit(&mut events, "a", "").await;
    for id in ["a", "none"] {
        let none = pod.shim.stats(id, PATIENCE).await;
        assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");
    }
    assert!(!pod.shim.has_no_stats());
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn a_containerd_shim_that_hangs_is_given_up_and_floods_nothing() {
    let (pod, sandbox) = pod().await;
    let shims = containerd_shims(&sandbox);
    let shims: Vec<_> = shims
        .iter()
        .map(|pid| Pid::from_raw(pid.cast_signed()))
        .collect();
    shims.iter().copied().for_each(halt);
    let short = Duration::from_millis(1);
    let refused = loop {
        match pod.shim.stats(&sandbox, short).await {
            Err(Error::Timeout(why)) if why.contains("did not answer") => {}
            other => break other,
        }
    };
    // Once its socket is full.
    match refused {
        Err(Error::Timeout(why)) => assert!(why.contains("does not read"), "{why}"),
        other => panic!("{other:?}"),
    }
    for shim in shims {
        kill(shim, Signal::SIGCONT).expect("SIGCONT");
    }
    until("an answer", || async {
        pod.shim.stats(&sandbox, PATIENCE).await.ok()
    })
    .await;
    end(pod, &sandbox, &[]).await;
}
