//! Which probe was the reason of a stop.

use std::time::Duration;

use super::*;
use crate::episode_call::EpisodeCall;
use crate::tests::script::{ScriptedPod, at, pod};
use criscope_cri::status::Code;

impl ContainerProbes {
    /// The number of containers with probes.
    fn len(&self) -> usize {
        self.containers.len().max(self.order.len())
    }

    /// That which failed before a stop of `app` that ended a tenth of a second later.
    fn before(&self, stop: u64) -> Option<FailedProbe> {
        self.failed_before(&app(&pod("web")), at(stop), at(stop + 100))
    }
}

fn app(web: &ScriptedPod) -> Arc<str> {
    let id = web.probe(("app", 0), 0, 0).container_id.clone();
    id.expect("an id")
}

/// A probe of `app` that ran once a second with these exit codes, 50 ms each.
fn probed(codes: &[i32]) -> ContainerProbes {
    let mut probes = ContainerProbes::default();
    for (n, code) in codes.iter().enumerate() {
        probes.note(&run(1000 * n as u64).exits(*code));
    }
    probes
}

fn run(began: u64) -> EpisodeCall {
    pod("web").probe(("app", 0), began, 50)
}

fn evidence(failed: Option<FailedProbe>) -> Option<KillEvidence> {
    failed.map(|failed| failed.evidence)
}

#[test]
fn a_probe_that_fails_right_before_a_kill_is_its_reason() {
    let web = pod("web");
    let mut probes = ContainerProbes::default();
    for n in 0..3 {
        probes.note(&web.probe(("app", 0), 10_000 * n, 50).exits(0));
    }
    for n in 3..6 {
        probes.note(&web.probe(("app", 0), 10_000 * n, 50).exits(1));
    }
    let id = web.probe(("app", 0), 0, 0).container_id.clone();
    let id = id.expect("an id");
    let expected = FailedProbe {
        result: ExecResult::Exit(1),
        in_a_row: 3,
        evidence: KillEvidence::AtOnce,
        before: Duration::from_millis(50),
    };
    assert_eq!(probes.before(50_100), Some(expected));
    assert_eq!(
        evidence(probes.before(58_000)),
        Some(KillEvidence::Weak),
        "long ago"
    );
    assert_eq!(probes.before(40_100), None, "it went on");
    assert_eq!(
        probes.failed_before("another", at(50_100), at(50_200)),
        None
    );
    let shown = probes.views_of(&id, "app", 0);
    assert_eq!((shown[0].runs, shown[0].failed), (6, 3));
    assert_eq!(shown[0].last_result, "exit code 1");
    probes.forget(&id);
    assert_eq!((probes.before(50_100), probes.len()), (None, 0));
}

/// A liveness probe would have led to a kill after the first series.
#[test]
fn a_probe_that_failed_as_often_before_without_a_kill_is_no_reason() {
    let codes = [0, 1, 1, 1, 0, 1, 1, 1, 1];
    assert_eq!(probed(&codes[..7]).before(6100), None);
    assert_eq!(probed(&codes[..8]).before(7100), None);
    let found = probed(&codes).before(8100);
    assert_eq!(found.map(|probe| probe.in_a_row), Some(4));
}

/// The startup probe may run the command of the liveness probe, and may fail more often.
#[test]
fn what_failed_before_the_first_success_may_have_been_the_startup_probe() {
    let probes = probed(&[1, 1, 1, 0, 1, 1]);
    assert_eq!(evidence(probes.before(5100)), Some(KillEvidence::Weak));
    let id = app(&pod("web"));
    let stopped = probes.failed_before(&id, at(5100), at(9000));
    assert_eq!(evidence(stopped), Some(KillEvidence::GivenUp));
    let startup = probed(&[1, 1, 1]);
    assert_eq!(evidence(startup.before(2100)), Some(KillEvidence::AtOnce));
}

/// A preStop hook that is no exec takes time that no call shows.
#[test]
fn a_probe_that_was_due_and_did_not_run_has_led_to_the_stop() {
    let probes = probed(&[0, 0, 1, 1]);
    let id = app(&pod("web"));
    let stopped = |at_ms, until| evidence(probes.failed_before(&id, at(at_ms), at(until)));
    assert_eq!(stopped(5300, 5400), Some(KillEvidence::Weak), "hardly due");
    assert_eq!(stopped(5300, 6600), Some(KillEvidence::GivenUp));
    assert_eq!(stopped(20_000, 20_100), Some(KillEvidence::GivenUp));
    // After one run its period is not known yet.
    let once = probed(&[1]);
    assert_eq!(
        evidence(once.failed_before(&id, at(9000), at(30_000))),
        Some(KillEvidence::Weak)
    );
    assert_eq!(once.failed_before(&id, at(90_000), at(91_000)), None);
}

/// A readiness probe with the command and the timeout of the liveness probe goes on while that does not.
#[test]
fn two_probes_of_one_command_at_the_same_time_are_not_told_apart() {
    let mut probes = ContainerProbes::default();
    for n in 0..4 {
        for views_of in 0..2 {
            probes.note(&run(1000 * n + 10 * views_of).exits(i32::from(n > 1)));
        }
    }
    probes.note(&run(4000).exits(1));
    let found = probes.before(3100).expect("one of them");
    assert_eq!((found.in_a_row, found.evidence), (2, KillEvidence::Weak));
    assert_eq!(probes.before(1100), None, "they succeed");
}

/// A liveness probe every 10 s and a readiness probe as often, which begins some seconds later. Both fail from 30 s on, and
/// the kubelet kills the container after 50 s.
fn liveness_and_readiness(later: u64) -> ContainerProbes {
    let mut probes = ContainerProbes::default();
    for n in 0..6 {
        for began in [10_000 * n, 10_000 * n + later] {
            probes.note(&run(began).exits(i32::from(n > 2)));
        }
    }
    probes
}

#[test]
fn two_probes_of_one_command_are_told_apart_by_their_rhythms() {
    let probes = liveness_and_readiness(3000);
    let found = probes.before(50_100).expect("the liveness probe");
    assert_eq!((found.in_a_row, found.evidence), (3, KillEvidence::AtOnce));
    let shown = probes.views_of(&app(&pod("web")), "app", 0);
    let counts: Vec<_> = shown.iter().map(|it| (it.runs, it.failed)).collect();
    assert_eq!(counts, [(6, 3), (6, 3)]);
    // One every 5 s, and one every 10 s.
    let mut probes = ContainerProbes::default();
    for began in [0, 2, 5, 10, 12, 15, 20, 22, 25, 30, 32] {
        probes.note(&run(1000 * began).exits(0));
    }
    let shown = probes.views_of(&app(&pod("web")), "app", 0);
    let runs: Vec<_> = shown.iter().map(|it| it.runs).collect();
    assert_eq!(runs, [7, 4]);
}

/// One probe every 5 s has the same runs. So has one of which a run was late.
#[test]
fn runs_of_one_rhythm_are_those_of_one_probe() {
    let mut late = ContainerProbes::default();
    for began in [0, 10_000, 20_400, 30_000, 40_000, 50_000, 60_000, 70_000] {
        late.note(&run(began).exits(0));
    }
    for probes in [liveness_and_readiness(5000), late] {
        assert_eq!(probes.views_of(&app(&pod("web")), "app", 0).len(), 1);
    }
}

/// So that no run of one is counted for the other.
#[test]
fn two_probes_that_run_in_another_rhythm_are_as_one_again() {
    let mut probes = liveness_and_readiness(3000);
    for began in [64_000, 65_000] {
        probes.note(&run(began).exits(1));
    }
    let shown = probes.views_of(&app(&pod("web")), "app", 0);
    let counts: Vec<_> = shown.iter().map(|it| (it.runs, it.failed)).collect();
    assert_eq!(counts, [(14, 8)]);
    assert_eq!(evidence(probes.before(65_100)), Some(KillEvidence::Weak));
}

/// The kubelet ignores it.
#[test]
fn a_probe_that_could_not_be_run_kills_nothing() {
    let mut probes = probed(&[0, 0]);
    for n in 2..5 {
        probes.note(&run(1000 * n).fails(Code::Unknown, "exec: not found"));
    }
    assert_eq!(probes.before(4100), None);
    probes.note(&run(5000).cancelled());
    assert_eq!(probes.before(5100), None);
    probes.note(&run(6000).fails(Code::DeadlineExceeded, "timed out"));
    let late = probes.before(6100).map(|failed| failed.result);
    assert_eq!(late, Some(ExecResult::TimedOut));
}

#[test]
fn probes_of_other_sizes_and_timeouts_are_others() {
    let web = pod("web");
    let mut probes = ContainerProbes::default();
    let mut ready = web.probe(("app", 0), 0, 50).exits(1);
    ready.request_bytes = 99;
    probes.note(&ready);
    probes.note(&web.probe(("app", 0), 1000, 50).exits(0));
    let id = ready.container_id.clone().expect("an id");
    let shown = probes.views_of(&id, "app", 0);
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].failed, shown[1].failed), (1, 0));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut probes = ContainerProbes::default();
    for n in 0..(MAX_PROBED_CONTAINERS as u64 + 10) {
        for key in 0..10 {
            let mut probe = pod(&format!("p{n}")).probe(("app", 0), n, 1).exits(0);
            probe.request_bytes = key;
            (0..20).for_each(|_| probes.note(&probe));
        }
    }
    assert_eq!(probes.len(), MAX_PROBED_CONTAINERS);
    let mut all = probes.containers.values();
    assert!(all.all(|views_of| {
        views_of.len() <= MAX_PROBES_PER_CONTAINER
            && views_of
                .iter()
                .all(|p| p.last.len() <= MAX_RESULTS_PER_PROBE)
    }));
}
