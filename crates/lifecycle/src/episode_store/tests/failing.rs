//! Reports while an episode keeps failing.

use super::*;

/// The reports of the only episode, at each second of this time.
fn reports(store: &mut EpisodeStore, seconds: std::ops::Range<u64>) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    for second in seconds {
        for due in store.take_due(at(second * 1000)) {
            all.push((second, due.root));
            if due.root {
                let root = store.get(due.number).expect("an episode").ids().root;
                store.note_exported(due.number, root, at(0));
            }
        }
    }
    all
}

#[test]
fn a_failing_start_is_reported_at_once_and_then_ever_less_often() {
    let (mut store, pod) = (store(), pod("a"));
    let pull = pod.pull("app:1", 500, 500).fails(Code::NotFound, "no");
    apply(&mut store, [pod.run(0, 100), pull]);
    assert_eq!(
        reports(&mut store, 1..1700),
        [
            (1, false),
            (61, true),
            (181, false),
            (421, false),
            (901, false)
        ]
    );
    // Made good, and broken again: not from the beginning.
    apply(&mut store, [pod.pull("app:1", 1_700_000, 100)]);
    assert_eq!(reports(&mut store, 1701..1705), []);
    let create = pod.create(("app", 0), 1_705_000, 100);
    apply(&mut store, [create.fails(Code::Unknown, "no")]);
    assert_eq!(reports(&mut store, 1706..1720), []);
}

#[test]
fn a_failure_that_is_made_good_at_once_is_reported_once() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, [pod.run(0, 100).fails(Code::Unknown, "cni")]);
    assert_eq!(reports(&mut store, 1..3), [(1, false)]);
    apply(&mut store, start(&pod, 10_000));
    assert_eq!(reports(&mut store, 11..900), []);
}

#[test]
fn what_its_caller_broke_off_is_not_reported() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, [pod.run(0, 100).cancelled()]);
    assert_eq!(reports(&mut store, 1..300), []);
}
