//! Hands ended calls from the request path to the recorder and the aggregator. Never waits.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanId, TraceId};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::container_events::ContainerEvent;
use super::kubelet::images::ImageLookup;
use super::kubelet::relist::{KubeletPoll, is_poll};
use super::kubelet::syncs::KubeletSpan;
use super::recorder::FlightRecorder;
use super::sessions::{ActiveSession, EndedSession};
use criscope_cri::Method;
use criscope_cri::call::episode::is_episodic;
use criscope_cri::call::steps::RuntimeSteps;
use criscope_cri::call::{Call, CallRecord, Outcome};
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

/// Length of the aggregator's queue, in events. A node starts a few pods at a time; each start makes about ten.
const QUEUE_LEN: usize = 4096;

/// Input of the aggregator.
#[derive(Debug)]
pub enum AggregatorEvent {
    /// A call of an episode, a ContainerStatus, an ExecSync, an Exec or a change of limits has ended; with its steps, if the built-in runtime served it.
    Ended(Arc<CallRecord>, Option<Arc<RuntimeSteps>>),
    /// Spans that the runtime exported below our calls, [`MAX_EVENT_SPANS`] at most. They arrive before their call has ended, or
    /// some seconds after.
    Spans(Vec<RuntimeSpan>),
    /// Spans of the kubelet's work on pods, [`MAX_EVENT_SPANS`] at most.
    Syncs(Vec<KubeletSpan>),
    /// A call of the kubelet that may be part of its relist has ended.
    Polled(KubeletPoll),
    /// The kubelet looked for an image.
    ImageLookup(ImageLookup),
    /// The runtime reported an event of a container or sandbox.
    Container(ContainerEvent),
    /// A session of exec, attach or port-forward begins.
    SessionBegan(Box<ActiveSession>),
    /// The session with this number has ended; `None` if its pod is unknown.
    SessionEnded(u64, Option<Box<EndedSession>>),
}

/// Upper bound of spans in one event.
pub const MAX_EVENT_SPANS: usize = 512;

/// A span that the runtime exported below a call of ours, without its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSpan {
    /// The trace.
    pub trace_id: TraceId,
    /// The CLIENT span of the call ([`criscope_cri::call::SpanIds::client`]).
    pub client: SpanId,
    /// The id of this span.
    pub span_id: SpanId,
    /// The parent: `client`, or another span of the runtime.
    pub parent: SpanId,
    /// Number of spans between this one and `client`: 0 for the runtime's own span of the call.
    pub depth: u16,
    /// The name: letters, digits and `._/ -`, at most 64 characters.
    pub name: Arc<str>,
    /// Begin, by the clock of this node.
    pub began: SystemTime,
    /// End, by the clock of this node.
    pub ended: SystemTime,
}

/// Hands every ended call to the recorder, and the calls of episodes to the aggregator.
#[derive(Debug)]
pub struct CallSink {
    recorder: Arc<FlightRecorder>,
    feed: Sender<AggregatorEvent>,
    drops: Arc<Drops>,
}

impl CallSink {
    /// A sink that records in `recorder`, and the receiving end of the aggregator's queue.
    pub fn new(
        recorder: Arc<FlightRecorder>,
        drops: Arc<Drops>,
    ) -> (Self, Receiver<AggregatorEvent>) {
        let (feed, events) = channel(QUEUE_LEN);
        let sink = Self {
            recorder,
            feed,
            drops,
        };
        (sink, events)
    }

    /// A sender for events other than calls.
    pub fn feed(&self) -> Sender<AggregatorEvent> {
        self.feed.clone()
    }

    /// Takes in a call that has ended. `matters` is false for an ordinary poll.
    pub fn end(&self, call: &Call, outcome: &Outcome, matters: bool) {
        let record = Arc::new(CallRecord::ended(call, outcome));
        if is_poll(call.method)
            && let Some(poll) = KubeletPoll::from_record(&record)
            && self.feed.try_send(AggregatorEvent::Polled(poll)).is_err()
        {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
        if let Some(found) = ImageLookup::from_record(&record)
            && self
                .feed
                .try_send(AggregatorEvent::ImageLookup(found))
                .is_err()
        {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
        let is_status = call.method == Method::ContainerStatus && record.container_state.is_some();
        let is_exec =
            matches!(call.method, Method::ExecSync | Method::Exec) && record.container_id.is_some();
        let is_news = record.facts.new_limits().is_some();
        let is_told = is_episodic(call.method) || call.method.checkpoints();
        if is_status || is_exec || is_news || is_told {
            let event = AggregatorEvent::Ended(Arc::clone(&record), call.steps.get().cloned());
            if self.feed.try_send(event).is_err() {
                self.drops.add(DropReason::StoryQueueFull, 1);
            }
        }
        self.recorder.record(record, matters);
    }
}
