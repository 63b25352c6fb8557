//! Gauges of pods agree with the list of pods, and exist on a node without any.

use super::*;
use crate::stories::tests::stories;
use crate::tests::scenario::read_calls;
use criscope_cri::Method;
use criscope_cri::subject::{PodIdentity, Subject};

fn counts(stories: &Stories) -> PodCounts {
    stories.pod_counts(&[])
}

fn causes(counts: &PodCounts) -> Vec<([&'static str; 3], usize)> {
    let failing = counts.failing.iter();
    let mut causes: Vec<_> = failing
        .map(|(failure, pods)| (label_values(*failure), *pods))
        .collect();
    causes.sort_unstable();
    causes
}

/// One pod counts once, however often it is retried and however many of its calls fail.
#[test]
fn pods_that_cannot_start_are_counted_by_cause() {
    let one = "pod one; run 0 +10; pull web:1 100 +10 fails NOT_FOUND no; pull web:1 200 +10 fails NOT_FOUND no; \
               create app 300 +10 fails UNKNOWN no";
    let two = "pod two; run 0 +10; pull web:1 400 +10 fails NOT_FOUND no";
    let three = "pod three; run 0 +10; pull web:1 400 +10 fails UNKNOWN `429 Too Many Requests`";
    let four = "pod four; run 0 +10 fails UNKNOWN `plugin type=\"bridge\" failed (add): no IP addresses available in range set`";
    let well = "pod well; run 0 +10; pull web:1 500 +10 fails NOT_FOUND no; pull web:1 600 +10";
    let all = [one, two, three, four, well];
    let stories = stories(all.into_iter().flat_map(read_calls));
    let counts = counts(&stories);
    assert_eq!(
        causes(&counts),
        [
            (["container_create", "node", "container_create_failed"], 1),
            (["image_pull", "pod", "image_not_found"], 1),
            (["image_pull", "registry", "registry_rate_limit"], 1),
            (["network", "cluster", "cni_no_addresses"], 1),
        ]
    );
    assert_eq!(counts.open_starts, 5);
}

/// The decision of the list: its states, and the cause of each failing start.
#[test]
fn gauges_agree_with_the_list_of_pods() {
    let stories = stories(
        [
            "pod pull; run 0 +10; pull web:1 100 +10 fails NOT_FOUND no",
            "pod up; run 0 +10; up app 100",
            "pod again; run 0 +10; up app 100; create app/1 70s +100 fails UNKNOWN `no space left on device`",
            "pod gone; run 0 +10; up app 100; stop 20s +10",
            "pod stays; run 0 +10; up app 100; stop 20s +10 fails UNKNOWN no",
        ]
        .into_iter()
        .flat_map(read_calls),
    );
    let counts = counts(&stories);
    let listed = stories.pods(&[]).pods;
    for state in PodState::ALL {
        let listed = listed.iter().filter(|pod| pod.state == state).count();
        let counted = counts.states.get(&state).copied().unwrap_or_default();
        assert_eq!(counted, listed, "{state:?}");
    }
    assert_eq!(counts.states[&PodState::Failing], 3);
    let failing: Vec<_> = causes(&counts)
        .into_iter()
        .map(|(labels, _)| labels[2])
        .collect();
    assert_eq!(
        failing,
        ["no_space", "image_not_found"],
        "and no failing stop"
    );
}

/// A sandbox that is being made for the first time is known only from the call in flight.
#[test]
fn a_start_counts_from_its_first_call() {
    let stories = stories([]);
    assert_eq!(counts(&stories).open_starts, 0);
    let run = Call::example(Method::RunPodSandbox);
    let subject = Subject {
        pod: Some(Arc::new(PodIdentity {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "uid-web".into(),
            attempt: 0,
        })),
        ..Subject::default()
    };
    run.subject.set(subject).expect("unset");
    let counts = stories.pod_counts(&[Arc::new(run)]);
    assert_eq!(counts.open_starts, 1);
    assert_eq!(counts.states, HashMap::from([(PodState::Starting, 1)]));
}

fn scrape(stories: Stories) -> String {
    let registry = Registry::new(prometheus::Registry::new(), []);
    let no_calls: CallsInFlight = Arc::new(Vec::new);
    register(&registry, &Arc::new(stories), &no_calls).expect("once");
    String::from_utf8(registry.encode().expect("encodes")).expect("utf-8")
}

#[test]
fn a_node_without_pods_has_every_series_that_dashboards_show_first() {
    let text = scrape(stories([]));
    for line in [
        "criscope_pods{state=\"crash_loop\"} 0",
        "criscope_pods{state=\"failing\"} 0",
        "criscope_pod_starts_failing{cause=\"registry_rate_limit\",origin=\"registry\",phase=\"image_pull\"} 0",
        "criscope_pod_starts_open 0",
        "criscope_pod_start_oldest_open_seconds 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}
