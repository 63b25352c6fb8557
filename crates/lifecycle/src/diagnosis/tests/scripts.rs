//! Scripts of calls, each with the exact first line.

use super::*;
use criscope_cri::call::Ending;
use criscope_cri::subject::ExitReason;

const LATE: &str = "context deadline exceeded";

impl EpisodeCall {
    fn with_deadline(mut self, ms: u64) -> Self {
        self.deadline = Some(std::time::Duration::from_millis(ms));
        self
    }

    /// The runtime answers with DEADLINE_EXCEEDED.
    fn gives_up(self, text: &str) -> Self {
        let mut call = self.fails(Code::DeadlineExceeded, text);
        call.outcome_mut().ending = Ending::Deadline;
        call
    }
}

fn exit(container: &str, code: i32, ran: u64, ended: u64) -> ExitRecord {
    let reason = match code {
        0 => ExitReason::Completed,
        _ => ExitReason::Error,
    };
    ExitRecord {
        container: container.into(),
        attempt: 0,
        code,
        reason,
        ran: Duration::from_millis(ran),
        at: at(ended),
        stop_requested: false,
        oom_kills: 0,
        oom_at: None,
        evicted: None,
        node_restarted: None,
        by_event: false,
    }
}

/// The first line of these calls and exits.
fn after(calls: Vec<EpisodeCall>, exits: Vec<ExitRecord>, pod: &ScriptedPod, now: u64) -> String {
    let mut store = store(calls);
    for exit in exits {
        store.note_exit(&pod.0, None, exit);
    }
    store.tick(at(now), &[]);
    pod_headline(&episodes(&store), at(now))
}

#[test]
fn deadlines() {
    let pod = pod("web");
    let run = |took| pod.run(0, took).with_deadline(240_000);
    let pull = |took| pod.pull("a:1", 0, took);
    let cases = [
        (
            run(240_000).late(),
            "RunPodSandbox passed the kubelet's deadline of 4m 00s",
        ),
        // The runtime answers first, with nothing but that.
        (
            run(239_990).gives_up(LATE),
            "RunPodSandbox passed the kubelet's deadline of 4m 00s",
        ),
        (
            run(240_000).gives_up("failed to setup network for sandbox: context deadline exceeded"),
            "RunPodSandbox passed the kubelet's deadline of 4m 00s; the runtime says: failed to setup network for sandbox",
        ),
        // Its own limit.
        (
            run(10_000).gives_up("shim: context deadline exceeded"),
            "the sandbox cannot be made: the runtime gave up after 10.0 s of the kubelet's 4m 00s: DEADLINE_EXCEEDED shim: \
             context deadline exceeded (now)",
        ),
        (
            pull(300_000).gives_up(LATE),
            "image a:1 cannot be pulled: the runtime gave up after 5m 00s, the kubelet set no deadline: DEADLINE_EXCEEDED \
             context deadline exceeded (now)",
        ),
        (
            pull(31_000).cancelled(),
            "PullImage of a:1 was broken off by the kubelet once after 31.0 s",
        ),
        // A runtime that cancels by itself says so.
        (
            pull(31_000).fails(Code::Cancelled, "context canceled"),
            "image a:1 cannot be pulled: CANCELLED context canceled (now)",
        ),
    ];
    for (call, line) in cases {
        let now = u64::try_from(call.took().as_millis()).expect("short");
        assert_eq!(says([call], now), line);
    }
}

#[test]
fn the_last_kind_of_failure_counts() {
    let pod = pod("web");
    let late = |from| pod.run(from, 2000).late();
    let refused = |from| {
        pod.run(from, 10)
            .fails(Code::Unknown, "name \"web\" is reserved for \"0a\"")
    };
    let network = |from| {
        pod.run(from, 100)
            .fails(Code::Unknown, "plugin type=\"bridge\" failed (add): broken")
    };
    let full = "network: the CNI plugin bridge fails: UNKNOWN broken";
    assert_eq!(
        says([late(0), network(15_000), network(30_000)], 35_100),
        format!("{full} (3 tries, the last 5 s ago)")
    );
    assert_eq!(
        says([network(0), refused(15_000)], 35_000),
        format!(
            "{full} (34 s ago), and 1 more try was refused since: the runtime still holds its name (name is reserved)"
        )
    );
    assert_eq!(
        says([network(0), late(15_000)], 35_000),
        "RunPodSandbox passed the kubelet's deadline of 2.00 s"
    );
}

#[test]
fn of_several_plugins_none_is_blamed_without_evidence() {
    let pod = pod("web");
    let run = || {
        pod.run(0, 3000).fails(
            Code::Unknown,
            "failed to setup network for sandbox: exit status 1",
        )
    };
    let two = run().seen(WorkKind::Cni, "bridge", "", 0, 1000).seen(
        WorkKind::Cni,
        "portmap",
        "",
        1000,
        2900,
    );
    let tail = "UNKNOWN exit status 1 (now)";
    assert_eq!(
        says([two], 3100),
        format!("network: it cannot be set up: {tail}")
    );
    let one = run().seen(WorkKind::Cni, "bridge", "", 0, 2900);
    assert_eq!(
        says([one], 3100),
        format!("network: the CNI plugin bridge fails: {tail}")
    );
    // The text names one that cannot be read: it is not the one that was seen.
    let hidden = "failed to setup network for sandbox \"0a\": plugin type=\"<redacted>\" failed (add): broken";
    let run = pod.run(0, 3000).fails(Code::Unknown, hidden);
    let said = says([run.seen(WorkKind::Cni, "bridge", "", 0, 2900)], 3100);
    assert!(said.starts_with("network: it cannot be set up"), "{said}");
}

#[test]
fn the_innermost_span_is_named() {
    let pod = pod("web");
    let span = |mut call: EpisodeCall, name, depth, from, to| {
        call = call.seen(WorkKind::Runtime, name, "", from, to);
        call.work.last_mut().expect("work").depth = depth;
        call
    };
    let run = span(pod.run(0, 10_000), "cri.sandbox.run", 1, 0, 10_000);
    let run = span(run, "cni.setup_pod_network", 2, 100, 9_500);
    let calls = |run| chain([run], up(&pod, 10_000));
    assert_eq!(
        says(calls(run.clone()), 60_000),
        "9.40 s of 10.2 s in the runtime's cni.setup_pod_network, during RunPodSandbox"
    );
    let inner = span(run, "bridge.add", 3, 200, 9_400);
    assert_eq!(
        says(calls(inner), 60_000),
        "9.20 s of 10.2 s in the runtime's bridge.add, during RunPodSandbox"
    );
    // Two at the same time do not explain each other.
    let run = span(pod.run(0, 10_000), "fetch", 2, 0, 10_000);
    let run = span(run, "unpack", 2, 1000, 9000);
    assert_eq!(
        says(calls(run), 60_000),
        "10.0 s of 10.2 s in the runtime's fetch, during RunPodSandbox"
    );
}

#[test]
fn no_process_was_seen() {
    let pod = pod("web");
    let stop = || pod.stop(0, 120_000);
    let line = "StopPodSandbox passed the kubelet's deadline of 2m 00s";
    assert_eq!(says([stop().late()], 120_000), line);
    assert_eq!(
        says([stop().late().scanned(true)], 120_000),
        format!("{line}; no process was seen at work for it")
    );
    let hangs = || pod.stop(0, 41_000).under_way(Some(120_000)).scanned(true);
    assert_eq!(
        says([hangs()], 41_000),
        "StopPodSandbox has taken 41.0 s of its 2m 00s; no process was seen at work for it"
    );
}

#[test]
fn ends_that_were_ordered_or_never_were() {
    let pod = pod("web");
    let start = || chain([pod.run(0, 100)], up(&pod, 100));
    let fine = "container app up after 300 ms, nothing slow";
    // By itself.
    assert_eq!(
        after(start(), vec![exit("app", 1, 5000, 5300)], &pod, 30_000),
        "container app ended with exit code 1 after 5.00 s; the start took 300 ms"
    );
    // Down since, however long it ran.
    assert_eq!(
        after(
            start(),
            vec![exit("app", 1, 500_000, 500_300)],
            &pod,
            530_000
        ),
        "container app ended with exit code 1 after 8m 20s; the start took 300 ms"
    );
    assert_eq!(
        after(start(), vec![exit("app", 0, 5000, 5300)], &pod, 30_000),
        "container app ended with exit code 0 after 5.00 s; the start took 300 ms"
    );
    // It was asked to end.
    for code in [137, 143, 1, 0] {
        let mut calls = start();
        calls.push(pod.kill(("app", 0), 20_000, 1000));
        let line = after(calls, vec![exit("app", code, 20_500, 20_800)], &pod, 40_000);
        assert!(!line.contains("exit code 1"), "{code}: {line}");
    }
    // With the sandbox.
    let mut calls = start();
    calls.push(pod.stop(20_000, 1000));
    let line = after(calls, vec![exit("app", 137, 20_500, 20_800)], &pod, 40_000);
    assert!(
        line.starts_with("the pod was stopped by the kubelet 19 s ago: app ended with its sandbox"),
        "{line}"
    );
    // It never ran: the runtime's own exit code says nothing.
    let error = "exec: \"srv\": executable file not found in $PATH";
    let calls = vec![
        pod.run(0, 100),
        pod.create(("app", 0), 100, 100),
        pod.start(("app", 0), 200, 100).fails(Code::Unknown, error),
    ];
    assert_eq!(
        after(calls, vec![exit("app", 128, 0, 290)], &pod, 5300),
        format!(
            "container app cannot be started: the image's PATH has no executable of that name: UNKNOWN {error} (5 s ago)"
        )
    );
    assert_eq!(after(start(), vec![], &pod, 30_000), fine);
    let mut two = start();
    two.extend([
        pod.create(("side", 0), 400, 100),
        pod.start(("side", 0), 500, 100),
    ]);
    assert_eq!(
        after(two, vec![], &pod, 30_000),
        "containers app, side up after 600 ms, nothing slow"
    );
}

#[test]
fn the_cause_of_a_long_stop() {
    let pod = pod("web");
    let calls = || {
        let stop = [pod.kill(("app", 0), 60_000, 30_000), pod.stop(90_000, 300)];
        chain([pod.run(0, 100)], up(&pod, 100))
            .into_iter()
            .chain(stop)
            .collect::<Vec<_>>()
    };
    let of_stop = |exits: Vec<ExitRecord>| {
        let mut store = store(calls());
        for exit in exits {
            store.note_exit(&pod.0, None, exit);
        }
        store.tick(at(200_000), &[]);
        let all = episodes(&store);
        let stop = all.iter().find(|e| e.kind == Kind::Stop).expect("a stop");
        let node = store.node();
        Diagnoser::new(&all, node, at(200_000))
            .cause(stop)
            .to_string()
    };
    let waits = "30.0 s of 30.3 s waiting for container app to end";
    assert_eq!(of_stop(vec![]), waits);
    assert_eq!(
        of_stop(vec![exit("app", 137, 89_700, 90_000)]),
        "30.0 s of 30.3 s until container app was killed: it did not end when asked (exit code 137)"
    );
    assert_eq!(
        of_stop(vec![exit("app", 0, 89_700, 90_000)]),
        "30.0 s of 30.3 s until container app ended when asked (exit code 0)"
    );
    // The exit of another container explains nothing.
    assert_eq!(of_stop(vec![exit("side", 137, 89_700, 90_000)]), waits);
    assert_eq!(of_stop(vec![exit("app", 137, 1000, 1300)]), waits);
}

#[test]
fn a_container_that_may_be_an_init_container() {
    let pod = pod("web");
    let start = || chain([pod.run(0, 100)], up(&pod, 100));
    let fresh = "container app up after 300 ms, nothing slow";
    assert_eq!(says(start(), 1000), fresh);
    assert_eq!(
        says(start(), 4800),
        "container app has run for 4.50 s, its start took 300 ms; the CRI does not say whether it is an init container"
    );
    // No other container followed: the start is closed.
    assert_eq!(says(start(), 30_000), fresh);
}

#[test]
fn what_broke_the_start_is_not_hidden() {
    let pod = pod("web");
    let unready = "cni plugin not initialized";
    let broken = |call: EpisodeCall| call.fails(Code::Unknown, unready);
    let line = format!(
        "network: it cannot be set up: no CNI configuration is loaded: UNKNOWN {unready} (4 s ago)"
    );
    // By the clean-up, which fails as well.
    let calls = [broken(pod.run(0, 500)), broken(pod.stop(1000, 100))];
    assert_eq!(says(calls, 5000), line);
    // A pod that was up is held by its stop.
    let calls = chain([pod.run(0, 500)], up(&pod, 500)).into_iter();
    let calls = calls.chain([broken(pod.stop(20_000, 100))]);
    assert!(says(calls, 21_000).starts_with("network: it cannot be taken down"));
    // By a retry that takes no longer than the tries before.
    let pull = |from, took| pod.pull("a:1", from, took);
    let failed = || pull(200, 5000).fails(Code::Unknown, "429 Too Many Requests");
    let retry = |took| {
        let calls = [
            pod.run(0, 100),
            failed(),
            pull(10_000, took).under_way(None),
        ];
        says(calls, 10_000 + took)
    };
    assert!(retry(2000).starts_with("image a:1 cannot be pulled: the registry limits"));
    assert!(retry(9000).starts_with("PullImage of a:1 has taken 9.00 s"));
}

#[test]
fn names_of_causes() {
    let pod = pod("web");
    let name = |calls: Vec<EpisodeCall>, now| {
        let mut store = store(calls);
        store.tick(at(now), &[]);
        let node = store.node();
        let all = episodes(&store);
        let cause = Diagnoser::new(&all, node, at(now)).newest_cause();
        cause.expect("a cause").name()
    };
    let pull = || pod.pull("a:1", 200, 100);
    let cases = [
        (
            vec![pod.run(0, 100), pull().fails(Code::NotFound, "")],
            "image_not_found",
        ),
        (
            vec![pod.run(0, 100), pull().fails(Code::Unknown, "odd")],
            "image_pull_failed",
        ),
        (
            vec![
                pod.run(0, 100)
                    .fails(Code::Unknown, "cni plugin not initialized"),
            ],
            "cni_not_ready",
        ),
        (
            vec![pod.run(0, 100).fails(Code::Unknown, "odd")],
            "sandbox_failed",
        ),
        (vec![pod.run(0, 2000).late()], "deadline_passed"),
        (vec![pod.run(0, 2000).under_way(None)], "call_in_flight"),
        (vec![pod.run(0, 200)], "no_further_call"),
        (chain([pod.run(0, 9000)], up(&pod, 9000)), "slow_sandbox"),
        (chain([pod.run(0, 90)], up(&pod, 100)), "quick"),
    ];
    for (calls, wanted) in cases {
        assert_eq!(name(calls, 50_000), wanted);
    }
}
