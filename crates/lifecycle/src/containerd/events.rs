//! Starts, exits and OOM kills of containers and sandboxes, from containerd's events service on its CRI socket.
//!
//! A task of the side thread keeps a connection to each containerd. It reads every event at once, since containerd queues
//! without a bound for a slow subscriber, and tries the aggregator's queue without waiting for it. Exits that it misses while
//! there is no subscription are found later by ContainerStatus.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use prost::Message as _;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::client::{ContainerdClient, ContainerdError};
use super::metrics::{EventMetrics, EventResult, SubscriptionChange};
use super::time;
use crate::call_sink::AggregatorEvent;
use crate::container_events::{ContainerEvent, ContainerEventKind};
use crate::process_scanner::Upstreams;
use crate::settings;
use criscope_cri::subject::Subject;
use criscope_cri::units::times::UnixMicros;
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;
use criscope_wire::services::{EventEnvelope, TaskExit, TaskReference};

// Topics of tasks: containers and the first processes of sandboxes (containerd, `core/runtime/events.go`).
const START_TOPIC: &str = "/tasks/start";
const EXIT_TOPIC: &str = "/tasks/exit";
const OOM_TOPIC: &str = "/tasks/oom";

/// Interval between two checks whether a backend is a containerd.
const BACKEND_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// First pause before a new subscription. The pause doubles each time.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Longest pause before a new subscription.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);

/// Pause after an answer that the service is missing or not permitted.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(600);

/// A subscription that lasted this long resets the pause.
const STEADY_AFTER: Duration = Duration::from_secs(30);

/// Finds the container or sandbox with an id.
pub type ContainerLookup = Arc<dyn Fn(&str) -> Option<Subject> + Send + Sync>;

/// The task that watches events.
pub struct EventWatch {
    /// Settings; `events` turns the task on.
    pub settings: settings::ContainerdSettings,
    /// The runtimes behind the proxy.
    pub upstreams: Upstreams,
    /// The index of pods.
    pub identify: ContainerLookup,
    /// The aggregator's queue.
    pub feed: Sender<AggregatorEvent>,
    /// Counter of events that the queue had no room for.
    pub drops: Arc<Drops>,
    /// Metrics of events.
    pub metrics: EventMetrics,
}

impl fmt::Debug for EventWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWatch").finish_non_exhaustive()
    }
}

impl EventWatch {
    /// Watches until dropped.
    pub async fn run(self: Arc<Self>) {
        if self.settings.events {
            let all = (self.upstreams)();
            join_all(all.iter().map(|upstream| self.watch(&upstream.backend))).await;
        }
    }

    /// Keeps up a subscription to one backend while it is a containerd.
    async fn watch(&self, backend: &str) {
        let mut pause = FIRST_RETRY_PAUSE;
        loop {
            let mut upstreams = (self.upstreams)().into_iter();
            let upstream = upstreams.find(|upstream| *upstream.backend == *backend);
            let Some(upstream) = upstream.filter(|upstream| upstream.is_containerd) else {
                sleep(BACKEND_CHECK_INTERVAL).await;
                continue;
            };
            let began = Instant::now();
            let Err(error) = self.follow(&upstream.socket).await;
            self.metrics.subscriptions.inc(SubscriptionChange::Ended);
            tracing::debug!(
                target: "criscope::lifecycle",
                event = "containerd.events",
                criscope.backend = backend,
                error.message = %error,
                "no subscription to the events of containerd"
            );
            let is_absent = matches!(
                error,
                ContainerdError::Status(Code::Unimplemented | Code::PermissionDenied)
            );
            if began.elapsed() >= STEADY_AFTER {
                pause = FIRST_RETRY_PAUSE;
            }
            sleep(if is_absent { UNSUPPORTED_PAUSE } else { pause }).await;
            pause = (2 * pause).min(MAX_RETRY_PAUSE);
        }
    }

    /// Subscribes, and passes events on until the subscription ends.
    async fn follow(&self, socket: &Path) -> Result<Infallible, ContainerdError> {
        let client = ContainerdClient::connect(socket).await?;
        let mut events = client
            .subscribe(&[START_TOPIC, EXIT_TOPIC, OOM_TOPIC])
            .await?;
        self.metrics.subscriptions.inc(SubscriptionChange::Begun);
        loop {
            let event = events.next().await?;
            self.forward(&event);
        }
    }

    /// Forwards the event of a task that belongs to a pod.
    fn forward(&self, event: &EventEnvelope) {
        let Some((result, task)) = read(event) else {
            return self.metrics.events.inc(EventResult::Unreadable);
        };
        let Some(task) = task else {
            return self.metrics.events.inc(result);
        };
        let Some(subject) = (self.identify)(&task.id) else {
            return self.metrics.events.inc(EventResult::Unknown);
        };
        self.metrics.events.inc(result);
        let Some(pod) = subject.pod else { return };
        let event = ContainerEvent {
            id: task.id.into(),
            pod,
            container: subject.container,
            kind: task.kind,
            at: task.at,
        };
        if self
            .feed
            .try_send(AggregatorEvent::Container(event))
            .is_err()
        {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
    }
}

/// An event of a task.
#[derive(Debug, PartialEq, Eq)]
struct TaskEvent {
    /// The id of the container or sandbox.
    id: String,
    kind: ContainerEventKind,
    at: UnixMicros,
}

/// Reads an event. An event without a task is only counted. `None` if it cannot be read.
fn read(event: &EventEnvelope) -> Option<(EventResult, Option<TaskEvent>)> {
    let value = &*event.event.as_ref()?.value;
    let sent = time(event.timestamp?).into();
    match &*event.topic {
        START_TOPIC => {
            let task = TaskEvent {
                id: TaskReference::decode(value).ok()?.container_id,
                kind: ContainerEventKind::Started,
                at: sent,
            };
            Some((EventResult::Start, Some(task)))
        }
        OOM_TOPIC => {
            let task = TaskEvent {
                id: TaskReference::decode(value).ok()?.container_id,
                kind: ContainerEventKind::OutOfMemory { kills: None },
                at: sent,
            };
            Some((EventResult::Oom, Some(task)))
        }
        EXIT_TOPIC => {
            let exit = TaskExit::decode(value).ok()?;
            // The exit of a command, a probe for example, is known from its ExecSync.
            if exit.id != exit.container_id {
                return Some((EventResult::ExecExit, None));
            }
            let code = i32::try_from(exit.exit_status).ok()?;
            let task = TaskEvent {
                id: exit.container_id,
                kind: ContainerEventKind::Ended {
                    code: Some(code),
                    signal: None,
                    started: None,
                    evicted: None,
                },
                at: exit.exited_at.map_or(sent, |at| time(at).into()),
            };
            Some((EventResult::Exit, Some(task)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use criscope_wire::{Any, Timestamp};

    use super::*;

    fn envelope(topic: &str, value: &impl prost::Message) -> EventEnvelope {
        EventEnvelope {
            timestamp: Some(Timestamp {
                seconds: 9,
                nanos: 1000,
            }),
            topic: topic.to_owned(),
            event: Some(Any {
                value: value.encode_to_vec(),
                ..Any::default()
            }),
        }
    }

    #[test]
    fn events_of_tasks_are_read() {
        let of = TaskReference {
            container_id: "c".to_owned(),
        };
        let exit = |id: &str| TaskExit {
            container_id: "c".to_owned(),
            id: id.to_owned(),
            exit_status: 5,
            exited_at: Some(Timestamp {
                seconds: 8,
                nanos: 0,
            }),
        };
        let task = |kind, at| {
            Some(TaskEvent {
                id: "c".to_owned(),
                kind,
                at: UnixMicros::new(at),
            })
        };
        let started = task(ContainerEventKind::Started, 9_000_001);
        assert_eq!(
            read(&envelope(START_TOPIC, &of)),
            Some((EventResult::Start, started))
        );
        let killed = task(ContainerEventKind::OutOfMemory { kills: None }, 9_000_001);
        assert_eq!(
            read(&envelope(OOM_TOPIC, &of)),
            Some((EventResult::Oom, killed))
        );
        let ended = ContainerEventKind::Ended {
            code: Some(5),
            signal: None,
            started: None,
            evicted: None,
        };
        let ended = task(ended, 8_000_000);
        assert_eq!(
            read(&envelope(EXIT_TOPIC, &exit("c"))),
            Some((EventResult::Exit, ended))
        );
        let of_probe = read(&envelope(EXIT_TOPIC, &exit("probe-1")));
        assert_eq!(of_probe, Some((EventResult::ExecExit, None)));
        assert_eq!(read(&envelope("/tasks/paused", &of)), None);
        let mut damaged = envelope(OOM_TOPIC, &of);
        damaged.event = Some(Any {
            value: vec![0xff],
            ..Any::default()
        });
        assert_eq!(read(&damaged), None);
    }
}
