//! Relists as a kubelet makes them, and what only looks like one.

use super::*;

fn poll(method: Method, began_ms: u64, took_ms: u64) -> KubeletPoll {
    let began = at(began_ms);
    KubeletPoll {
        method,
        began,
        ended: began + Duration::from_millis(took_ms),
        unfiltered: true,
        good: true,
        pod: None,
        container: None,
    }
}

fn at(ms: u64) -> UnixMicros {
    UnixMicros::new(1_750_000_000_000_000 + ms * 1000)
}

/// The two lists of a relist that begins then, 10 ms each.
fn lists(relists: &mut RelistTracker, began: u64) -> Option<Duration> {
    relists.note(poll(Method::ListPodSandbox, began, 10));
    relists.note(poll(Method::ListContainers, began + 10, 10))
}

#[test]
fn a_relist_takes_what_is_not_the_pause() {
    let mut relists = RelistTracker::default();
    assert_eq!(lists(&mut relists, 0), None);
    assert_eq!(lists(&mut relists, 1020), Some(Duration::from_millis(20)));
    relists.note(poll(Method::ContainerStatus, 1040, 2000));
    assert_eq!(lists(&mut relists, 4040), Some(Duration::from_millis(2020)));
    let state = relists.state(at(4100)).expect("a state");
    assert_eq!(
        (state.since, state.blame),
        (Duration::from_millis(60), None)
    );
}

#[test]
fn a_status_that_hangs_is_to_blame() {
    let mut relists = RelistTracker::default();
    lists(&mut relists, 0);
    lists(&mut relists, 1020);
    let hanging = |now: u64| vec![poll(Method::ContainerStatus, 1050, now - 1050)];
    assert_eq!(relists.tick(at(30_000), hanging(30_000)), None);
    let state = relists.tick(at(61_100), hanging(61_100)).expect("reported");
    assert!(state.is_slow() && !state.is_unhealthy());
    let said = state.to_string();
    assert!(
        said.starts_with("the kubelet's relist (PLEG) began 1m 00s ago"),
        "{said}"
    );
    assert!(said.contains("ContainerStatus has taken 1m 00s"), "{said}");
    assert_eq!(relists.tick(at(62_000), hanging(62_000)), None, "once");
    // Garbage collection lists while the relist hangs.
    assert_eq!(lists(&mut relists, 90_000), None);
    let state = relists
        .tick(at(182_000), hanging(182_000))
        .expect("reported");
    assert!(state.is_unhealthy(), "{state}");
    // It goes on.
    relists.tick(at(200_000), Vec::new());
    relists.note(poll(Method::ContainerStatus, 1050, 198_000));
    assert_eq!(
        lists(&mut relists, 200_060),
        Some(Duration::from_millis(198_040))
    );
    assert_eq!(
        lists(&mut relists, 201_080),
        Some(Duration::from_millis(20))
    );
    assert!(!relists.state(at(201_100)).expect("a state").is_slow());
}

#[test]
fn another_part_of_the_kubelet_that_hangs_is_no_slow_relist() {
    let mut relists = RelistTracker::default();
    lists(&mut relists, 0);
    for n in 1..100 {
        let now = n * 1020;
        let hanging = vec![poll(Method::ContainerStatus, 100, now - 100)];
        assert_eq!(relists.tick(at(now), hanging), None);
        lists(&mut relists, now);
    }
    assert!(!relists.state(at(101_000)).expect("a state").is_slow());
}

#[test]
fn lists_that_fail_do_not_count() {
    let mut relists = RelistTracker::default();
    lists(&mut relists, 0);
    for n in 1..70 {
        let mut list = poll(Method::ListPodSandbox, 1020 * n, 10);
        list.good = false;
        relists.note(list);
    }
    let state = relists.state(at(70_500)).expect("a state");
    assert_eq!(state.since, Duration::from_millis(70_500));
    assert_eq!(state.blame.as_deref(), Some("ListPodSandbox fails"));
}

#[test]
fn evented_pleg_and_a_kubelet_that_is_gone_are_not_judged() {
    let mut relists = RelistTracker::default();
    lists(&mut relists, 0);
    lists(&mut relists, 1020);
    assert_eq!(relists.state(at(120_000)), None, "it is gone");
    let events = vec![poll(Method::GetContainerEvents, 500, 100_000)];
    assert_eq!(relists.tick(at(100_500), events), None);
    assert_eq!(relists.state(at(100_500)), None);
}

#[test]
fn lists_with_a_filter_are_of_others() {
    let mut relists = RelistTracker::default();
    let mut list = poll(Method::ListPodSandbox, 0, 10);
    list.unfiltered = false;
    relists.note(list);
    relists.note(poll(Method::ListContainers, 10, 10));
    assert_eq!(relists.state(at(100)), None);
    assert!(
        KubeletPoll::from_record(&CallRecord::ended(
            &criscope_cri::call::Call::example(Method::ListPodSandbox),
            &criscope_cri::call::Outcome {
                ending: criscope_cri::call::Ending::Ok,
                code: criscope_cri::status::Code::Ok,
                source: criscope_cri::call::Source::Backend,
                message: None,
                elapsed: std::time::Duration::ZERO,
            },
        ))
        .is_none(),
        "not the kubelet"
    );
}

/// The pause may seem shorter than it was: the wall clock is corrected now and then.
#[test]
fn a_pause_of_less_than_a_second_is_no_time_at_all() {
    let mut relists = RelistTracker::default();
    lists(&mut relists, 0);
    assert_eq!(lists(&mut relists, 950), Some(Duration::ZERO));
}

/// Kubelets differ in it: a list without a filter, or with an empty one.
#[test]
fn lists_of_all_sandboxes_are_told_by_their_size() {
    let mut call = crate::tests::script::pod("web").run(0, 10);
    call.record_mut().method = Method::ListPodSandbox;
    for (bytes, is_unfiltered) in [(5, true), (7, true), (9, false), (66, false)] {
        call.record_mut().request_bytes = bytes;
        let poll = KubeletPoll::from_record(&call).expect("a poll");
        assert_eq!(poll.unfiltered, is_unfiltered, "{bytes} bytes");
    }
}
