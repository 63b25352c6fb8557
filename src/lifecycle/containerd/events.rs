//! Starts, exits and OOM kills of containers and sandboxes, from containerd's events service on its CRI socket.
//!
//! A task of the side thread, with a connection of its own to each containerd. It reads whatever comes, since containerd queues
//! without a bound for a subscriber that does not, and hands it to the aggregator's queue, which is tried and never waited
//! for. What is missed while there is no subscription is learned later, by ContainerStatus, as without events.

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

use super::client::{Client, Error};
use super::messages::{Envelope, TaskExit, TaskOf, Timestamp};
use super::metrics::{EventMetrics, Seen};
use crate::cri::subject::Subject;
use crate::lifecycle::call_sink::Event;
use crate::lifecycle::container_events::{ContainerEvent, What};
use crate::lifecycle::process_scanner::{Upstream, Upstreams};
use crate::lifecycle::settings;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;

/// The topics of tasks, which are containers and the first processes of sandboxes (containerd, `core/runtime/events.go`).
const START: &str = "/tasks/start";
const EXIT: &str = "/tasks/exit";
const OOM: &str = "/tasks/oom";

/// How often a backend is looked at that is no containerd, or not known to be one yet.
const LOOK: Duration = Duration::from_secs(1);

/// Pause before the next try: the first, doubled each time, and the longest; and that before a containerd without the
/// service, or that refuses it, is asked again.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);
const ABSENT: Duration = Duration::from_secs(600);

/// After a subscription that lasted so long the pauses begin anew.
const STEADY: Duration = Duration::from_secs(30);

/// Finds out which container or sandbox an id is of.
pub type Identify = Arc<dyn Fn(&str) -> Option<Subject> + Send + Sync>;

/// The task.
pub struct EventWatch {
    /// Whether it runs.
    pub settings: settings::ContainerdSettings,
    /// The runtimes behind the proxy.
    pub upstreams: Upstreams,
    /// The index of pods.
    pub identify: Identify,
    /// The aggregator's queue.
    pub feed: Sender<Event>,
    /// Counts what does not fit in.
    pub drops: Arc<Drops>,
    /// Counts events.
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
            join_all(all.iter().map(|it| self.watch(&it.backend))).await;
        }
    }

    /// Keeps up a subscription to one backend while it is a containerd.
    async fn watch(&self, backend: &str) {
        let mut pause = FIRST;
        loop {
            let is_it = |it: &Upstream| *it.backend == *backend && it.is_containerd;
            let Some(upstream) = (self.upstreams)().into_iter().find(is_it) else {
                sleep(LOOK).await;
                continue;
            };
            let began = Instant::now();
            let Err(error) = self.follow(&upstream.socket).await;
            self.metrics.ended();
            tracing::debug!(
                target: "criscope::lifecycle",
                event = "containerd.events",
                cri.backend = backend,
                error.message = %error,
                "no subscription to the events of containerd"
            );
            let is_absent = matches!(
                error,
                Error::Status(Code::Unimplemented | Code::PermissionDenied)
            );
            if began.elapsed() >= STEADY {
                pause = FIRST;
            }
            sleep(if is_absent { ABSENT } else { pause }).await;
            pause = (2 * pause).min(LONGEST);
        }
    }

    /// Subscribes, and passes events on until the subscription ends.
    async fn follow(&self, socket: &Path) -> Result<Infallible, Error> {
        let client = Client::connect(socket).await?;
        let mut events = client.subscribe(&[START, EXIT, OOM]).await?;
        self.metrics.begun();
        loop {
            let event = events.next().await?;
            self.take(&event);
        }
    }

    /// Passes an event on, if it is of a pod.
    fn take(&self, event: &Envelope) {
        let Some((seen, task)) = read(event) else {
            return self.metrics.seen(Seen::Unreadable);
        };
        let Some((id, what, at)) = task else {
            return self.metrics.seen(seen);
        };
        let Some(subject) = (self.identify)(&id) else {
            return self.metrics.seen(Seen::Unknown);
        };
        self.metrics.seen(seen);
        let Some(pod) = subject.pod else { return };
        let event = ContainerEvent {
            id: id.into(),
            pod,
            container: subject.container,
            what,
            at,
        };
        if self.feed.try_send(Event::Container(event)).is_err() {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
    }
}

/// Task, event and time, in microseconds since 1970.
type Told = (String, What, u64);

/// Reads an event; without a task it is not used. `None` if it cannot be read.
fn read(event: &Envelope) -> Option<(Seen, Option<Told>)> {
    let value = &*event.event.as_ref()?.value;
    let sent = micros(event.timestamp?);
    match &*event.topic {
        START => {
            let id = TaskOf::decode(value).ok()?.container_id;
            Some((Seen::Start, Some((id, What::Started, sent))))
        }
        OOM => {
            let id = TaskOf::decode(value).ok()?.container_id;
            let killed = What::OutOfMemory { kills: None };
            Some((Seen::Oom, Some((id, killed, sent))))
        }
        EXIT => {
            let exit = TaskExit::decode(value).ok()?;
            // Of a command, as that of a probe: its ExecSync says the same.
            if exit.id != exit.container_id {
                return Some((Seen::ExecExit, None));
            }
            let code = i32::try_from(exit.exit_status).ok()?;
            let at = exit.exited_at.map_or(sent, micros);
            let ended = What::Ended {
                code: Some(code),
                started: None,
                evicted: None,
            };
            Some((Seen::Exit, Some((exit.container_id, ended, at))))
        }
        _ => None,
    }
}

fn micros(at: Timestamp) -> u64 {
    let seconds = u64::try_from(at.seconds).unwrap_or_default();
    let nanos = u64::try_from(at.nanos).unwrap_or_default();
    seconds.saturating_mul(1_000_000) + nanos / 1000
}

#[cfg(test)]
mod tests {
    use super::super::messages::Any;
    use super::*;

    fn envelope(topic: &str, value: &impl prost::Message) -> Envelope {
        Envelope {
            timestamp: Some(Timestamp {
                seconds: 9,
                nanos: 1000,
            }),
            topic: topic.to_owned(),
            event: Some(Any {
                value: value.encode_to_vec(),
            }),
        }
    }

    #[test]
    fn events_of_tasks_are_read() {
        let of = TaskOf {
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
        let task = |what, at| Some(("c".to_owned(), what, at));
        let started = task(What::Started, 9_000_001);
        assert_eq!(read(&envelope(START, &of)), Some((Seen::Start, started)));
        let killed = task(What::OutOfMemory { kills: None }, 9_000_001);
        assert_eq!(read(&envelope(OOM, &of)), Some((Seen::Oom, killed)));
        let ended = What::Ended {
            code: Some(5),
            started: None,
            evicted: None,
        };
        let ended = task(ended, 8_000_000);
        assert_eq!(read(&envelope(EXIT, &exit("c"))), Some((Seen::Exit, ended)));
        let of_probe = read(&envelope(EXIT, &exit("probe-1")));
        assert_eq!(of_probe, Some((Seen::ExecExit, None)));
        assert_eq!(read(&envelope("/tasks/paused", &of)), None);
        let mut damaged = envelope(OOM, &of);
        damaged.event = Some(Any { value: vec![0xff] });
        assert_eq!(read(&damaged), None);
    }
}
