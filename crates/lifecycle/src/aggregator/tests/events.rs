//! Events of containers, and what calls say of the same.

use std::time::Duration;

use super::*;
use crate::container_events::{ContainerEvent, ContainerEventKind};
use criscope_cri::units::times::UnixMicros;

/// ContainerStatus may know the reason better, if it comes soon.
#[tokio::test(start_paused = true)]
async fn an_exit_that_an_event_told_is_counted_once_with_its_reason() {
    let aggregator = aggregator(None);
    for name in ["web", "lone"] {
        aggregator.start(name);
    }
    let at = SystemTime::now() + Duration::from_secs(1);
    for name in ["web", "lone"] {
        let of = call(Method::ContainerStatus, name, 0);
        let subject = of.subject.get().expect("a subject");
        let task = |kind, at| {
            AggregatorEvent::Container(ContainerEvent {
                id: subject.container_id.clone().expect("an id"),
                pod: subject.pod.clone().expect("a pod"),
                container: subject.container.clone(),
                kind,
                at: UnixMicros::from(at),
            })
        };
        let feed = aggregator.sink.feed();
        let began = task(ContainerEventKind::Started, at - Duration::from_millis(200));
        let ended = ContainerEventKind::Ended {
            code: Some(1),
            signal: None,
            started: None,
            evicted: None,
        };
        let ended = task(ended, at);
        for event in [began, ended] {
            feed.send(event).await.expect("room");
        }
    }
    sleep(Duration::from_secs(2)).await;
    let count = |reason: &str| {
        let start = format!("criscope_container_exits_total{{reason=\"{reason}\"}} ");
        let metrics = aggregator.metrics();
        let line = metrics.lines().find_map(|l| l.strip_prefix(&start));
        line.expect("a count").to_owned()
    };
    assert_eq!(count("error"), "0");
    let story = aggregator.stories.pod_story("shop", "web", None, &[]);
    let exits: Vec<_> = story.expect("story").episodes[0].exits.clone();
    assert_eq!((exits.len(), exits[0].ran_ms), (1, 200.0), "told at once");
    for _ in 0..2 {
        aggregator.end(&status("web", 0, at, ExitReason::Unknown), Ending::Ok);
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!((&*count("error"), &*count("unknown")), ("1", "1"));
}

#[tokio::test(start_paused = true)]
async fn oom_kills_and_dead_sandboxes_are_counted_and_named() {
    let aggregator = aggregator(None);
    for name in ["web", "lone"] {
        aggregator.start(name);
    }
    sleep(Duration::from_secs(1)).await;
    let at = SystemTime::now() + Duration::from_secs(2);
    let feed = aggregator.sink.feed();
    let event = |name: &str, kind, of_sandbox: bool| {
        let of = call(Method::ContainerStatus, name, 0);
        let subject = of.subject.get().expect("a subject");
        AggregatorEvent::Container(ContainerEvent {
            id: subject.container_id.clone().expect("an id"),
            pod: subject.pod.clone().expect("a pod"),
            container: subject.container.clone().filter(|_| !of_sandbox),
            kind,
            at: UnixMicros::from(at),
        })
    };
    let killed = |kills| ContainerEventKind::OutOfMemory { kills: Some(kills) };
    let ended = || ContainerEventKind::Ended {
        code: Some(137),
        signal: None,
        started: None,
        evicted: None,
    };
    for event in [
        event("web", killed(2), false),
        event("web", killed(3), false),
        event("web", killed(3), false),
        event("web", ended(), true),
        event("lone", ended(), true),
    ] {
        feed.send(event).await.expect("room");
    }
    // The pod was deleted: its sandbox ended before StopPodSandbox returned.
    let mut stop = call(Method::StopPodSandbox, "lone", 0);
    stop.started_at = at - Duration::from_secs(1);
    aggregator.end(&stop, Ending::Ok);
    sleep(Duration::from_secs(10)).await;
    let count = |name: &str| {
        let metrics = aggregator.metrics();
        let mut lines = metrics.lines();
        let line = lines.find_map(|l| l.strip_prefix(&format!("{name} ")));
        line.expect("a count").to_owned()
    };
    assert_eq!(count("criscope_container_oom_kills_total"), "3");
    assert_eq!(count("criscope_sandbox_deaths_total"), "1");
    let episode = |name: &str| {
        let story = aggregator.stories.pod_story("shop", name, None, &[]);
        let mut episodes = story.expect("story").episodes;
        episodes.retain(|it| it.kind == "start");
        episodes.remove(0)
    };
    let (web, lone) = (episode("web"), episode("lone"));
    assert_eq!((web.oom_kills.len(), web.oom_kills[0].kills), (1, 3));
    let death = web.sandbox_death.expect("a death");
    assert_eq!((death.code, death.with_shim), (Some(137), false));
    assert_eq!((lone.oom_kills.len(), lone.sandbox_death), (0, None));
}

/// The log would call it a kill by an unknown process.
#[tokio::test(start_paused = true)]
async fn an_exit_during_a_stop_in_flight_was_asked_for() {
    let aggregator = aggregator(None);
    aggregator.start("web");
    sleep(Duration::from_secs(1)).await;
    let mut stop = call(Method::StopContainer, "web", 0);
    stop.started_at = SystemTime::now() + Duration::from_secs(1);
    let at = stop.started_at + Duration::from_secs(2);
    let subject = stop.subject.get().expect("a subject").clone();
    let stop = Arc::new(stop);
    aggregator
        .in_flight
        .lock()
        .expect("lock")
        .push(Arc::clone(&stop));
    let ended = AggregatorEvent::Container(ContainerEvent {
        id: subject.container_id.expect("an id"),
        pod: subject.pod.expect("a pod"),
        container: subject.container,
        kind: ContainerEventKind::Ended {
            code: Some(137),
            signal: None,
            started: Some(UnixMicros::from(at - Duration::from_secs(10))),
            evicted: None,
        },
        at: UnixMicros::from(at),
    });
    aggregator.sink.feed().send(ended).await.expect("room");
    sleep(Duration::from_secs(1)).await;
    // Without the calls in flight, as the log sees it.
    let story = aggregator.stories.pod_story("shop", "web", None, &[]);
    let exits = story.expect("story").episodes[0].exits.clone();
    assert!(exits[0].ordered, "{exits:?}");
}

/// The first process of a sandbox ends before StopPodSandbox has released the network.
#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ends_during_a_stop_in_flight_has_not_died() {
    let aggregator = aggregator(None);
    aggregator.start("web");
    // Between two checks of the aggregator, which look for stops too.
    sleep(Duration::from_millis(1500)).await;
    let mut stop = call(Method::StopPodSandbox, "web", 0);
    stop.started_at = SystemTime::now() + Duration::from_secs(1);
    let at = stop.started_at + Duration::from_millis(100);
    let subject = stop.subject.get().expect("a subject").clone();
    { aggregator.in_flight.lock() }
        .expect("lock")
        .push(Arc::new(stop));
    let ended = AggregatorEvent::Container(ContainerEvent {
        id: subject.sandbox_id.expect("an id"),
        pod: subject.pod.expect("a pod"),
        container: None,
        kind: ContainerEventKind::Ended {
            code: Some(137),
            signal: None,
            started: None,
            evicted: None,
        },
        at: UnixMicros::from(at),
    });
    aggregator.sink.feed().send(ended).await.expect("room");
    sleep(Duration::from_millis(100)).await;
    let story = aggregator.stories.pod_story("shop", "web", None, &[]);
    let start = story.expect("story").episodes.remove(0);
    assert_eq!(start.sandbox_death, None);
}
