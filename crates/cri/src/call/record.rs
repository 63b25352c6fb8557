//! An immutable copy of a call, in flight or ended: identity, times and outcome, without its messages.
//!
//! Its serde form is the journal's line of a call. It renames a few fields and omits fields that only the flight recorder
//! shows. Journals of earlier versions must stay readable; `lifecycle/journal/line.rs` has a test of the format.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, TraceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::episode;
use super::facts::CallFacts;
use super::fault::InjectedFault;
use super::joined::JoinedCall;
use super::live::{Call, CallStage};
use super::outcome::{Ending, Outcome};
use super::peer::Peer;
use super::route::{Route, RouteReason};
use crate::Method;
use crate::status::Code;
use crate::subject::{ContainerIdentity, ContainerState, PodIdentity};
use crate::units::times::{self, UnixMicros};

/// An immutable copy of a call. Clones share strings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Counts calls since the start of the process.
    pub seq: u64,
    /// The method.
    pub method: Method,
    /// When the request headers were read.
    #[serde(with = "times::unix")]
    pub began: SystemTime,
    /// Stage or outcome.
    #[serde(flatten)]
    pub state: CallState,
    /// The caller's deadline, counted from `began`.
    #[serde(
        with = "times::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline: Option<Duration>,
    /// The caller.
    #[serde(
        rename = "client",
        serialize_with = "write_client",
        deserialize_with = "read_client"
    )]
    pub peer: Arc<Peer>,
    /// The pod.
    pub pod: Option<Arc<PodIdentity>>,
    /// The sandbox id.
    #[serde(rename = "sandbox", default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<Arc<str>>,
    /// The container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Arc<ContainerIdentity>>,
    /// The container id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<Arc<str>>,
    /// The image reference, without user, password and query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Arc<str>>,
    /// The requested runtime handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<Arc<str>>,
    /// The backend, and why it was chosen.
    #[serde(
        rename = "backend",
        serialize_with = "write_backend",
        deserialize_with = "read_backend",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub route: Option<Route>,
    /// The state in a ContainerStatus response.
    #[serde(skip)]
    pub container_state: Option<ContainerState>,
    /// Facts besides the subject.
    #[serde(default, skip_serializing_if = "CallFacts::is_none")]
    pub facts: CallFacts,
    /// The fault that was injected into it on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<InjectedFault>,
    /// The earlier call that it waited for, whose caller gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinedCall>,
    /// When the request was sent to the backend, counted from `began`, and how long the backend took.
    #[serde(skip)]
    pub backend_time: Option<(Duration, Duration)>,
    /// Bytes of request messages.
    #[serde(skip)]
    pub request_bytes: u64,
    /// Bytes of response messages.
    #[serde(skip)]
    pub response_bytes: u64,
    /// Its spans, when traces are on; `None` for a call read from the journal. Boxed, because thousands of records are kept.
    #[serde(skip)]
    pub spans: Option<Box<SpanIds>>,
    /// The largest share of its deadline that was reported while it ran, in percent; 0 if none.
    #[serde(skip)]
    pub share_used: u32,
}

/// In flight or ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CallState {
    /// In flight.
    InFlight {
        /// The current stage.
        stage: CallStage,
        /// Time since `began`.
        age: Duration,
    },
    /// Ended.
    Ended(Outcome),
}

/// The spans of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// The trace.
    pub trace_id: TraceId,
    /// SERVER span.
    pub server: SpanId,
    /// CLIENT span of the call to the backend.
    pub client: SpanId,
    /// The caller's span, if it sent one: few do.
    pub caller: Option<Box<SpanContext>>,
    /// Whether the spans were handed to the exporter.
    pub kept: bool,
}

impl CallRecord {
    /// A call that has just ended.
    pub fn ended(call: &Call, outcome: &Outcome) -> Self {
        Self::new(call, CallState::Ended(outcome.clone()))
    }

    /// A call in flight, as it is now.
    pub fn in_flight(call: &Call) -> Self {
        let (stage, age) = (call.stage(), call.age());
        Self::new(call, CallState::InFlight { stage, age })
    }

    fn new(call: &Call, state: CallState) -> Self {
        let subject = call.subject.get();
        let response = call.response.get();
        Self {
            seq: call.seq,
            method: call.method,
            began: call.started_at,
            deadline: call.deadline,
            peer: Arc::clone(&call.peer),
            pod: subject.and_then(|s| s.pod.clone()),
            sandbox_id: call.sandbox_id().cloned(),
            container: subject.and_then(|s| s.container.clone()),
            container_id: call.container_id().cloned(),
            image: subject.and_then(|s| s.image.clone()),
            handler: subject.and_then(|s| s.handler.clone()),
            container_state: response.and_then(|r| r.state),
            facts: CallFacts::from(call),
            fault: call.injected(state.elapsed()),
            joined: call.joined(),
            route: call.route.get().cloned(),
            backend_time: call.backend_span(state.elapsed()),
            request_bytes: call.request_bytes(),
            response_bytes: call.response_bytes(),
            spans: call.placement().map(|placement| {
                Box::new(SpanIds {
                    trace_id: placement.trace_id,
                    server: placement.server,
                    client: placement.client,
                    caller: call
                        .trace
                        .as_ref()
                        .and_then(|trace| trace.parent.clone())
                        .map(Box::new),
                    kept: call.is_kept(),
                })
            }),
            share_used: call.share_used(),
            state,
        }
    }

    /// Its duration so far.
    pub fn elapsed(&self) -> Duration {
        self.state.elapsed()
    }

    /// When it ended; now for one in flight.
    pub fn end(&self) -> SystemTime {
        self.began + self.elapsed()
    }

    /// When it began.
    pub fn began_at(&self) -> UnixMicros {
        UnixMicros::from(self.began)
    }

    /// Its duration so far, in whole microseconds as in the journal.
    pub fn took(&self) -> Duration {
        times::whole_micros(self.elapsed())
    }

    /// When it ended; now for one in flight.
    pub fn ended_at(&self) -> UnixMicros {
        self.began_at() + self.took()
    }

    /// The trace of its episode; `None` if it is part of none.
    pub fn episode(&self) -> Option<episode::Ids> {
        let (pod, container) = (self.pod.as_deref(), self.container.as_deref());
        episode::Ids::for_call(self.method, pod, container, self.sandbox_id.as_deref())
    }

    /// Its outcome; `None` while it is in flight.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            CallState::InFlight { .. } => None,
            CallState::Ended(outcome) => Some(outcome),
        }
    }

    /// Returns whether it is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.outcome().is_none()
    }

    /// Returns whether it has ended this way.
    pub fn has_ended(&self, ending: Ending) -> bool {
        self.outcome()
            .is_some_and(|outcome| outcome.ending == ending)
    }

    /// Returns whether it has succeeded. Stopping or removing an object that does not exist counts as success.
    pub fn is_good(&self) -> bool {
        self.outcome().is_some_and(|outcome| {
            outcome.ending == Ending::Ok
                || (self.method.takes_away() && outcome.code == Code::NotFound)
        })
    }

    /// Returns whether it has failed.
    pub fn is_bad(&self) -> bool {
        !self.is_in_flight() && !self.is_good()
    }

    /// The outcome, for tests that change it.
    ///
    /// # Panics
    /// If the call has not ended.
    #[cfg(any(test, feature = "test-util"))]
    pub fn outcome_mut(&mut self) -> &mut Outcome {
        match &mut self.state {
            CallState::InFlight { .. } => panic!("the call has not ended"),
            CallState::Ended(outcome) => outcome,
        }
    }

    /// The container's name.
    pub fn container_name(&self) -> Option<&str> {
        self.container.as_deref().map(|c| &*c.name)
    }

    /// The error message.
    pub fn error(&self) -> Option<&Arc<str>> {
        self.outcome()?.message.as_ref()
    }
}

impl CallState {
    fn elapsed(&self) -> Duration {
        match self {
            Self::InFlight { age, .. } => *age,
            Self::Ended(outcome) => outcome.elapsed,
        }
    }
}

impl Serialize for CallState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::InFlight { .. } => Err(serde::ser::Error::custom("the call has not ended")),
            Self::Ended(outcome) => outcome.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CallState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Outcome::deserialize(deserializer).map(Self::Ended)
    }
}

fn write_client<S: Serializer>(peer: &Peer, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&peer.in_one_word())
}

fn read_client<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Peer>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let peer = Peer::from_one_word(&word);
    peer.map(Arc::new)
        .ok_or_else(|| serde::de::Error::custom(format_args!("unknown client {word}")))
}

fn write_backend<S: Serializer>(route: &Option<Route>, serializer: S) -> Result<S::Ok, S::Error> {
    let backend = route.as_ref().map(|route| &route.backend);
    backend.serialize(serializer)
}

fn read_backend<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Route>, D::Error> {
    let backend = Option::<Arc<str>>::deserialize(deserializer)?;
    let reason = RouteReason::Default;
    Ok(backend.map(|backend| Route { backend, reason }))
}
