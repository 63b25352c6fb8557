//! What is remembered of probes.

use super::*;
use crate::tests::script::{at, pod};

#[test]
fn a_container_that_is_removed_is_forgotten() {
    let probe = pod("web").probe(("app", 0), 0, 50).exits(1);
    let id = probe.container_id.clone().expect("an id");
    let mut probes = ContainerProbes::default();
    probes.note(&probe);
    assert!(probes.failed_before(&id, at(100), at(200)).is_some());
    probes.forget(&id);
    assert_eq!(probes.failed_before(&id, at(100), at(200)), None);
    assert!(probes.containers.is_empty() && probes.order.is_empty());
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut probes = ContainerProbes::default();
    for n in 0..(MAX_PROBED_CONTAINERS as u64 + 10) {
        for key in 0..10 {
            let mut probe = pod(&format!("p{n}")).probe(("app", 0), n, 1).exits(0);
            probe.record_mut().request_bytes = key;
            for _ in 0..20 {
                probes.note(&probe);
            }
        }
    }
    let known = probes.containers.len().max(probes.order.len());
    assert_eq!(known, MAX_PROBED_CONTAINERS);
    let mut all = probes.containers.values();
    assert!(all.all(|views_of| {
        views_of.len() <= MAX_PROBES_PER_CONTAINER
            && views_of
                .iter()
                .all(|p| p.last.len() <= MAX_RESULTS_PER_PROBE)
    }));
}

#[test]
fn a_series_of_failures_is_written_ever_less_often() {
    let mut probes = ContainerProbes::default();
    let mut written = Vec::new();
    for n in 1..=20 {
        let exit = i32::from(n < 20);
        let probe = pod("web").probe(("app", 0), 1000 * n, 50).exits(exit);
        if probes.note(&probe) {
            written.push(n);
        }
    }
    assert_eq!(written, [1, 2, 4, 8, 16, 20]);
}
