//! Where the request path hands over what it knows of a call that has ended. Nothing here waits.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanId, TraceId};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::recorder::Recorder;
use super::sessions::{Open, Session};
use crate::call::episode::is_told;
use crate::call::steps::RuntimeSteps;
use crate::call::{Call, CallRecord, Outcome};
use crate::cri::Method;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;

/// Events that may wait for the aggregator. A node starts a few pods at a time; each makes about ten.
const WAITING: usize = 4096;

/// What the aggregator is told.
#[derive(Debug)]
pub enum Event {
    /// A call that makes an episode, or a look at a container, has ended.
    Ended(Box<CallRecord>, Option<Arc<RuntimeSteps>>),
    /// Spans that the runtime reported below calls of ours: [`MOST_SPANS`] at most. They may come before their call has
    /// ended, and for some seconds after.
    Spans(Vec<RuntimeSpan>),
    /// A session of exec, attach or port-forward begins.
    SessionBegan(Box<Open>),
    /// The session of this number has ended. What it was is told if its pod is known.
    SessionEnded(u64, Option<Box<Session>>),
}

/// Most spans in one event.
pub const MOST_SPANS: usize = 512;

/// A span that the runtime reported, below a call that we made to it. Holds nothing of its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSpan {
    /// The trace.
    pub trace_id: TraceId,
    /// Our span of the call it belongs to ([`crate::call::SpanIds::client`]).
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
    /// A sink that records in `recorder`, and the aggregator's end of its queue.
    pub fn new(recorder: Arc<Recorder>, drops: Arc<Drops>) -> (Self, Receiver<Event>) {
        let (feed, events) = channel(WAITING);
        let sink = Self {
            recorder,
            feed,
            drops,
        };
        (sink, events)
    }

    /// Another way in for events, for those who see more than calls.
    pub fn feed(&self) -> Sender<Event> {
        self.feed.clone()
    }

    /// A call has ended. `matters` says whether it is more than an ordinary poll.
    pub fn end(&self, call: &Call, outcome: &Outcome, matters: bool) {
        let record = CallRecord::ended(call, outcome);
        let is_look = call.method == Method::ContainerStatus && record.container_state.is_some();
        if is_look || is_told(call.method) {
            let event = Event::Ended(Box::new(record.clone()), call.steps.get().cloned());
            if self.feed.try_send(event).is_err() {
                self.drops.add(DropReason::StoryQueueFull, 1);
            }
        }
        self.recorder.record(record, matters);
    }
}
