//! Hands ended calls from the request path to the recorder and the aggregator. Never waits.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanId, TraceId};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::container_events::ContainerEvent;
use super::kubelet::images::FailedImageLookup;
use super::kubelet::relist::{KubeletPoll, is_poll};
use super::kubelet::syncs::KubeletSpan;
use super::recorder::Recorder;
use super::sessions::{EndedSession, Open};
use crate::call::episode::is_episodic;
use crate::call::steps::RuntimeSteps;
use crate::call::{Call, CallRecord, Outcome};
use crate::cri::Method;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;

/// Length of the aggregator's queue, in events. A node starts a few pods at a time; each start makes about ten.
const WAITING: usize = 4096;

/// Input of the aggregator.
#[derive(Debug)]
pub enum Event {
    /// A call of an episode, a ContainerStatus or an ExecSync has ended; with its steps, if the built-in runtime served it.
    Ended(Arc<CallRecord>, Option<Arc<RuntimeSteps>>),
    /// Spans that the runtime exported below our calls, [`MOST_SPANS`] at most. They arrive before their call has ended, or
    /// some seconds after.
    Spans(Vec<RuntimeSpan>),
    /// Spans of the kubelet's work on pods, [`MOST_SPANS`] at most.
    Syncs(Vec<KubeletSpan>),
    /// A call of the kubelet that may be part of its relist has ended.
    Polled(KubeletPoll),
    /// The kubelet looked for an image that is absent, or that the runtime cannot look up.
    NoImage(FailedImageLookup),
    /// The runtime tells of a container or sandbox by itself.
    Container(ContainerEvent),
    /// A session of exec, attach or port-forward begins.
    SessionBegan(Box<Open>),
    /// The session with this number has ended; `None` if its pod is unknown.
    SessionEnded(u64, Option<Box<EndedSession>>),
}

/// Most spans in one event.
pub const MOST_SPANS: usize = 512;

/// A span that the runtime exported below a call of ours, without its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSpan {
    /// The trace.
    pub trace_id: TraceId,
    /// The CLIENT span of its call ([`crate::call::SpanIds::client`]).
    pub client: SpanId,
    /// Its own id.
    pub span_id: SpanId,
    /// Its parent: `client`, or another span of the runtime.
    pub parent: SpanId,
    /// Spans between it and `client`: 0 for the runtime's own span of the call.
    pub depth: u16,
    /// Its name: letters, digits and `._/ -`, at most 64 characters.
    pub name: Arc<str>,
    /// When it began, on the clock of the runtime, which is that of this node.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
}

/// See the module documentation.
#[derive(Debug)]
pub struct CallSink {
    recorder: Arc<Recorder>,
    feed: Sender<Event>,
    drops: Arc<Drops>,
}

impl CallSink {
    /// A sink that records in `recorder`, and the receiving end of the aggregator's queue.
    pub fn new(recorder: Arc<Recorder>, drops: Arc<Drops>) -> (Self, Receiver<Event>) {
        let (feed, events) = channel(WAITING);
        let sink = Self {
            recorder,
            feed,
            drops,
        };
        (sink, events)
    }

    /// A sender for events other than calls.
    pub fn feed(&self) -> Sender<Event> {
        self.feed.clone()
    }

    /// A call has ended. `matters` is false for an ordinary poll.
    pub fn end(&self, call: &Call, outcome: &Outcome, matters: bool) {
        let record = Arc::new(CallRecord::ended(call, outcome));
        if is_poll(call.method)
            && let Some(poll) = KubeletPoll::from_record(&record)
            && self.feed.try_send(Event::Polled(poll)).is_err()
        {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
        if let Some(found) = FailedImageLookup::from_record(&record)
            && self.feed.try_send(Event::NoImage(found)).is_err()
        {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
        let is_look = call.method == Method::ContainerStatus && record.container_state.is_some();
        let is_exec = call.method == Method::ExecSync && record.container_id.is_some();
        if is_look || is_exec || is_episodic(call.method) {
            let event = Event::Ended(Arc::clone(&record), call.steps.get().cloned());
            if self.feed.try_send(event).is_err() {
                self.drops.add(DropReason::StoryQueueFull, 1);
            }
        }
        self.recorder.record(record, matters);
    }
}
