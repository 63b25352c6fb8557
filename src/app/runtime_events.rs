//! Passes the built-in runtime's own events of containers and sandboxes (exits, OOM kills) on to the aggregator, like those of
//! containerd ([`crate::lifecycle::containerd::events`]) but without a connection.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Sender;

use crate::cri::subject::Subject;
use crate::lifecycle::AggregatorEvent;
use crate::lifecycle::container_events::{ContainerEvent, ContainerEventKind, ReachedLimit};
use crate::proxy::pod_index::PodIndex;
use crate::runtime::events::{ProcessChange, ProcessEvent, SandboxLimit};
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::units::times::UnixMicros;

/// Passes events on until the runtime ends. Events beyond the queue, and events of unknown pods, are dropped: ContainerStatus reports them later.
pub(super) async fn pass_on(
    mut events: Receiver<ProcessEvent>,
    index: Arc<PodIndex>,
    feed: Sender<AggregatorEvent>,
    drops: Arc<Drops>,
) {
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(missed)) => {
                drops.add(
                    DropReason::StoryQueueFull,
                    missed.try_into().unwrap_or(usize::MAX),
                );
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let subject = index.subject_of(&event.id);
        let Some(event) = subject.and_then(|subject| container_event(&event, subject)) else {
            continue;
        };
        if feed.try_send(AggregatorEvent::Container(event)).is_err() {
            drops.add(DropReason::StoryQueueFull, 1);
        }
    }
}

fn container_event(event: &ProcessEvent, subject: Subject) -> Option<ContainerEvent> {
    let kind = match &event.what {
        ProcessChange::OutOfMemory { kills } => ContainerEventKind::OutOfMemory {
            kills: Some((*kills).try_into().unwrap_or(u32::MAX)),
        },
        ProcessChange::Exited {
            code,
            signal,
            started_at,
            evicted,
        } => ContainerEventKind::Ended {
            code: *code,
            signal: *signal,
            started: Some(time(*started_at)),
            evicted: evicted.clone(),
        },
        ProcessChange::InitExited => ContainerEventKind::Ended {
            code: None,
            signal: None,
            started: None,
            evicted: None,
        },
        ProcessChange::SandboxContainerExited { limit } => {
            ContainerEventKind::SandboxContainerEnded {
                limit: limit.map(|limit| match limit {
                    SandboxLimit::Memory => ReachedLimit::Memory,
                    SandboxLimit::Processes => ReachedLimit::Processes,
                }),
            }
        }
    };
    Some(ContainerEvent {
        id: event.id.as_str().into(),
        pod: subject.pod?,
        container: subject.container,
        kind,
        at: time(event.at),
    })
}

/// From nanoseconds.
fn time(at: i64) -> UnixMicros {
    UnixMicros::new(u64::try_from(at / 1000).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::sync::{broadcast, mpsc};

    use super::*;
    use crate::cri::subject::{ContainerIdentity, PodIdentity};
    use crate::proxy::pod_index::{ContainerEntry, SandboxEntry};

    fn index() -> Arc<PodIndex> {
        let index = PodIndex::new(10, 10);
        let sandbox = SandboxEntry {
            pod: Arc::new(PodIdentity {
                name: "web".into(),
                ..PodIdentity::default()
            }),
            backend: "builtin".into(),
        };
        index.insert_sandbox("s".into(), sandbox);
        let container = ContainerEntry {
            container: Arc::new(ContainerIdentity {
                name: "app".into(),
                attempt: 1,
            }),
            sandbox_id: "s".into(),
            backend: "builtin".into(),
        };
        index.insert_container("c".into(), container);
        Arc::new(index)
    }

    fn event(id: &str, what: ProcessChange) -> ProcessEvent {
        ProcessEvent {
            id: id.to_owned(),
            what,
            at: 7_000_500,
        }
    }

    const OOM: ProcessChange = ProcessChange::OutOfMemory { kills: 2 };

    #[tokio::test]
    async fn events_get_the_pod_of_their_container() {
        let (to, events) = broadcast::channel(8);
        let (feed, mut fed) = mpsc::channel(8);
        let exited = ProcessChange::Exited {
            code: Some(137),
            signal: Some(9),
            started_at: 2_000_000,
            evicted: Some("evicted by NRI plugin 10-a".into()),
        };
        let limited = ProcessChange::SandboxContainerExited {
            limit: Some(SandboxLimit::Processes),
        };
        for event in [
            event("c", OOM),
            event("unknown", OOM),
            event("c", exited),
            event("s", ProcessChange::InitExited),
            event("s", limited),
        ] {
            to.send(event).expect("a listener");
        }
        drop(to);
        let drops = Arc::new(Drops::default());
        pass_on(events, index(), feed, Arc::clone(&drops)).await;
        let mut seen = Vec::new();
        while let Some(AggregatorEvent::Container(event)) = fed.recv().await {
            assert_eq!((&*event.pod.name, event.at), ("web", UnixMicros::new(7000)));
            let container = event
                .container
                .as_ref()
                .map(|container| container.name.to_string());
            seen.push((container, event.kind));
        }
        let app = || Some("app".to_owned());
        let ended = |code, started, evicted: Option<&str>| ContainerEventKind::Ended {
            code,
            signal: code.map(|_| 9),
            started,
            evicted: evicted.map(Into::into),
        };
        assert_eq!(
            seen,
            [
                (app(), ContainerEventKind::OutOfMemory { kills: Some(2) }),
                (
                    app(),
                    ended(
                        Some(137),
                        Some(UnixMicros::new(2000)),
                        Some("evicted by NRI plugin 10-a")
                    )
                ),
                (None, ended(None, None, None)),
                (
                    None,
                    ContainerEventKind::SandboxContainerEnded {
                        limit: Some(ReachedLimit::Processes)
                    }
                ),
            ]
        );
        assert_eq!(drops.count(DropReason::StoryQueueFull), 0);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_counted() {
        let (to, events) = broadcast::channel(2);
        let (feed, _fed) = mpsc::channel(1);
        for _ in 0..5 {
            to.send(event("c", OOM)).expect("a listener");
        }
        drop(to);
        let drops = Arc::new(Drops::default());
        pass_on(events, index(), feed, Arc::clone(&drops)).await;
        // Three that the listener missed, and one of two for which the aggregator has no room.
        assert_eq!(drops.count(DropReason::StoryQueueFull), 4);
    }
}
