//! Faults that were injected on purpose are never taken for those of the node.

use std::time::Duration;

use super::*;
use criscope_cri::call::{FaultKind, InjectedFault};

/// The call as one into which a fault of this kind was injected, and which it held so long.
fn injected(call: &EpisodeCall, kind: FaultKind, held: u64) -> EpisodeCall {
    let mut record = (**call).clone();
    record.fault = Some(InjectedFault::new(kind, Duration::from_millis(held)));
    EpisodeCall::new(Arc::new(record), Vec::new(), None)
}

#[test]
fn a_delay_is_the_cause_of_a_slow_start() {
    let pod = pod("web");
    let run = injected(&pod.run(0, 3200), FaultKind::Delay, 3000);
    let calls = chain([run], up(&pod, 3300));
    assert_eq!(
        says(calls, 60_000),
        "3.00 s of 3.50 s in an injected fault (delay), during RunPodSandbox"
    );
}

#[test]
fn a_call_that_hangs_says_why() {
    let run = pod("web").run(0, 5000).under_way(Some(240_000));
    assert_eq!(
        says([injected(&run, FaultKind::Hang, 5000)], 5000),
        "RunPodSandbox has taken 5.00 s of its 4m 00s; now in an injected fault (hang)"
    );
    let late = pod("web").run(0, 5000).late();
    assert_eq!(
        says([injected(&late, FaultKind::Hang, 5000)], 6000),
        "RunPodSandbox passed the kubelet's deadline of 5.00 s; 5.00 s in an injected fault (hang)"
    );
}

/// Code and text are those of the fault, whatever they would mean otherwise.
#[test]
fn an_error_that_was_injected_is_no_class_of_faults() {
    let text = "injected fault: criscope fault 1 lets this call fail with NOT_FOUND";
    let pod = pod("web");
    for (code, name) in [
        (Code::NotFound, "NOT_FOUND"),
        (Code::Unauthenticated, "UNAUTHENTICATED"),
        (Code::Unavailable, "UNAVAILABLE"),
    ] {
        let pull = pod.pull("web:1", 200, 1).fails(code, text);
        let calls = [pod.run(0, 100), injected(&pull, FaultKind::Fail, 0)];
        assert_eq!(
            says(calls, 5000),
            format!("image web:1 cannot be pulled: {name} {text} (4 s ago)")
        );
    }
    let late = pod.pull("web:1", 200, 1).late();
    let late = injected(&late, FaultKind::Fail, 0);
    let headline = says([pod.run(0, 100), late], 5000);
    assert!(headline.contains("DEADLINE_EXCEEDED"), "{headline}");
    assert!(!headline.contains("gave up"), "{headline}");
}

#[test]
fn no_headline_leaves_it_out() {
    let pod = pod("web");
    let quick = injected(&pod.run(0, 300), FaultKind::Delay, 200);
    let start = injected(&pod.start(("app", 0), 400, 200), FaultKind::Delay, 100);
    let calls = [quick, pod.create(("app", 0), 300, 100), start];
    assert_eq!(
        says(calls, 60_000),
        "container app up after 600 ms, nothing slow; \
         an injected fault (delay) held RunPodSandbox for 200 ms, and 1 more call had one"
    );
    // Something else is slower.
    let calls = [
        injected(&pod.run(0, 600), FaultKind::Delay, 500),
        pod.pull("web:1", 700, 9000),
    ];
    let headline = says(calls, 9700);
    assert!(
        headline.starts_with("image pull: 9.00 s of 9.70 s"),
        "{headline}"
    );
    let end = "an injected fault (delay) held RunPodSandbox for 500 ms";
    assert!(headline.ends_with(end), "{headline}");
}
