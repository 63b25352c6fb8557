//! A call as stories keep it: the record of one that has ended, or one in flight. Times are microseconds since 1970, and
//! whole numbers, so that sums of them are exact.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::SpanId;

use super::call_sink::RuntimeSpan;
use super::process_scanner::{Observation, WorkKind};
use super::view;
use crate::call::steps::{RuntimeSteps, StepRecord, Worker};
use crate::call::{Call, Client, Ending};
use crate::call::{CallRecord, SpanIds};
use crate::cri::Method;
use crate::cri::status::{Code, code_name};
use crate::cri::subject::{ContainerIdentity, PodIdentity};

/// Most observations of one call that are kept: the longest.
const OBSERVATIONS: usize = 24;

/// A call of a story.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EpisodeCall {
    pub(super) seq: u64,
    pub(super) method: Method,
    /// When it entered.
    pub(super) began: u64,
    /// How long it took, or has taken.
    pub(super) elapsed: u64,
    /// The caller's deadline, from `began`.
    pub(super) deadline: Option<u64>,
    pub(super) client: Client,
    pub(super) pod: Option<Arc<PodIdentity>>,
    pub(super) sandbox_id: Option<Arc<str>>,
    pub(super) container: Option<Arc<ContainerIdentity>>,
    pub(super) container_id: Option<Arc<str>>,
    pub(super) image: Option<Arc<str>>,
    pub(super) handler: Option<Arc<str>>,
    pub(super) backend: Option<Arc<str>>,
    pub(super) end: End,
    /// Whether the same had failed before in its episode.
    pub(super) retry: bool,
    pub(super) observations: Vec<Work>,
    pub(super) spans: Option<Box<SpanIds>>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// It has not; how far it has come.
    InFlight(&'static str),
    /// It has.
    Over {
        ending: Ending,
        code: Code,
        error: Option<Arc<str>>,
    },
}

/// A observation, in our units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) work: WorkKind,
    pub(super) name: Arc<str>,
    pub(super) doing: Option<Arc<str>>,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// Whether the built-in runtime told it itself.
    pub(super) own: bool,
}

/// Microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> u64 {
    span(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Microseconds.
pub(super) fn span(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

/// Milliseconds, with fractions.
pub(super) fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

impl EpisodeCall {
    /// A call that has ended, and what was seen of the work for it.
    pub(super) fn ended(record: &CallRecord, observations: Vec<Observation>) -> Self {
        Self {
            seq: record.seq,
            method: record.method,
            began: micros(record.began),
            elapsed: span(record.elapsed),
            deadline: record.deadline.map(span),
            client: record.peer.client,
            pod: record.pod.clone(),
            sandbox_id: record.sandbox_id.clone(),
            container: record.container.clone(),
            container_id: record.container_id.clone(),
            image: record.image.clone(),
            handler: record.handler.clone(),
            backend: record.route.as_ref().map(|r| Arc::clone(&r.backend)),
            end: End::Over {
                ending: record.ending,
                code: record.code,
                error: record.message.clone(),
            },
            retry: false,
            observations: all_seen(observations, record.steps.as_deref()),
            spans: record.spans.clone().map(Box::new),
        }
    }

    /// A call in flight.
    pub(super) fn in_flight(call: &Call, observations: Vec<Observation>) -> Self {
        let subject = call.subject.get();
        Self {
            seq: call.seq,
            method: call.method,
            began: micros(call.started_at),
            elapsed: span(call.age()),
            deadline: call.deadline.map(span),
            client: call.peer.client,
            pod: subject.and_then(|s| s.pod.clone()),
            sandbox_id: call.sandbox_id().cloned(),
            container: subject.and_then(|s| s.container.clone()),
            container_id: call.container_id().cloned(),
            image: subject.and_then(|s| s.image.clone()),
            handler: subject.and_then(|s| s.handler.clone()),
            backend: call.route.get().map(|r| Arc::clone(&r.backend)),
            end: End::InFlight(call.stage().name()),
            retry: false,
            observations: all_seen(observations, call.steps.get().map(AsRef::as_ref)),
            spans: None,
        }
    }

    /// When it ended; now, as far as one in flight has come.
    pub(super) fn ends(&self) -> u64 {
        self.began.saturating_add(self.elapsed)
    }

    /// Whether it has not ended.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.end, End::InFlight(_))
    }

    /// Our span of it, below which the runtime's are.
    pub(super) fn client_span(&self) -> Option<SpanId> {
        self.spans.as_ref().map(|spans| spans.client)
    }

    /// Adds what was seen of the work for it.
    pub(super) fn see(&mut self, more: impl IntoIterator<Item = Work>) {
        let mut seen = std::mem::take(&mut self.observations);
        seen.extend(more);
        self.observations = longest(seen);
    }

    /// Whether it ended and did what it was to do. What is to be gone and is not there is gone.
    pub(super) fn is_good(&self) -> bool {
        match self.end {
            End::InFlight(_) => false,
            End::Over { ending, code, .. } => {
                ending == Ending::Ok || (self.takes_away() && code == Code::NotFound)
            }
        }
    }

    /// Whether it ended and did not do what it was to do.
    pub(super) fn is_bad(&self) -> bool {
        !self.is_in_flight() && !self.is_good()
    }

    /// Whether it ends something.
    pub(super) fn takes_away(&self) -> bool {
        matches!(
            self.method,
            Method::StopContainer
                | Method::StopPodSandbox
                | Method::RemoveContainer
                | Method::RemovePodSandbox
        )
    }

    /// Whether it made the sandbox that it names.
    pub(super) fn is_new_sandbox(&self) -> bool {
        self.method == Method::RunPodSandbox && self.is_good()
    }

    /// What within the pod it is about: a container's name, an image, or nothing for the sandbox itself.
    pub(super) fn matter(&self) -> &str {
        match self.method {
            Method::PullImage => self.image.as_deref().unwrap_or_default(),
            _ => self.container_name().unwrap_or_default(),
        }
    }

    /// The container's name.
    pub(super) fn container_name(&self) -> Option<&str> {
        self.container.as_deref().map(|c| &*c.name)
    }

    /// As it is shown in an episode that began at `from`.
    pub(super) fn view(&self, from: u64) -> view::Call {
        let (outcome, code, error, phase) = match &self.end {
            End::InFlight(phase) => ("in_flight", "", None, Some((*phase).to_owned())),
            End::Over {
                ending,
                code,
                error,
            } => {
                let error = error.as_deref().map(str::to_owned);
                (ending.name(), code_name(*code), error, None)
            }
        };
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        view::Call {
            seq: self.seq,
            method: self.method.name().to_owned(),
            offset_ms: millis(self.began.saturating_sub(from)),
            duration_ms: millis(self.elapsed),
            outcome: outcome.to_owned(),
            code: code.to_owned(),
            error,
            phase,
            deadline_ms: self.deadline.map(millis),
            container: self.container_name().map(str::to_owned),
            image: text(&self.image),
            backend: text(&self.backend),
            client: self.client.name().to_owned(),
            retry: self.retry,
            details: self.observations.iter().map(|s| s.view(from)).collect(),
            spans: self.spans.as_deref().cloned(),
        }
    }
}

impl Work {
    /// A span of the runtime.
    pub(super) fn of_span(span: &RuntimeSpan) -> Self {
        Self {
            work: WorkKind::Runtime,
            name: Arc::clone(&span.name),
            doing: None,
            began: micros(span.began),
            ended: micros(span.ended),
            own: false,
        }
    }

    /// A step of the built-in runtime; `None` for one whose parts are told.
    fn of_phase(record: &StepRecord) -> Option<Self> {
        let words = record.step.words();
        let name = record.name.as_deref();
        let (work, name, doing) = match record.step.worker() {
            Worker::Several => return None,
            Worker::Cni => (WorkKind::Cni, name.unwrap_or(words).into(), None),
            Worker::Oci => (
                WorkKind::Oci,
                name.unwrap_or_default().into(),
                Some(words.into()),
            ),
            Worker::Own => {
                let whole = format!("{words} {}", name.unwrap_or_default());
                (WorkKind::Runtime, whole.trim_end().into(), None)
            }
        };
        let began = micros(record.began);
        Some(Self {
            work,
            name,
            doing,
            began,
            ended: began.saturating_add(span(record.took())),
            own: true,
        })
    }

    /// Whether it is time that belongs to the network.
    pub(super) fn is_network(&self) -> bool {
        self.work == WorkKind::Cni
    }

    fn view(&self, from: u64) -> view::Detail {
        let source = match self.work {
            _ if self.own => "runtime",
            WorkKind::Cni | WorkKind::Oci => "process",
            WorkKind::Runtime => "span",
        };
        view::Detail {
            what: self.work.name().to_owned(),
            name: (*self.name).to_owned(),
            doing: self.doing.as_deref().map(str::to_owned),
            offset_ms: millis(self.began.saturating_sub(from)),
            duration_ms: millis(self.ended.saturating_sub(self.began)),
            source: source.to_owned(),
        }
    }
}

/// What was seen from outside, and what the built-in runtime tells itself: only one of them knows of a call.
fn all_seen(observations: Vec<Observation>, phases: Option<&RuntimeSteps>) -> Vec<Work> {
    match phases {
        Some(phases) => longest(phases.read().iter().filter_map(Work::of_phase).collect()),
        None => kept(observations),
    }
}

fn kept(observations: Vec<Observation>) -> Vec<Work> {
    let seen = observations.into_iter().map(|s| Work {
        work: s.work,
        name: s.name,
        doing: s.doing,
        began: micros(s.began),
        ended: micros(s.last_seen),
        own: false,
    });
    longest(seen.collect())
}

/// The longest of too many observations, in the order in which they began.
fn longest(mut seen: Vec<Work>) -> Vec<Work> {
    if seen.len() > OBSERVATIONS {
        seen.sort_by_key(|s| std::cmp::Reverse(s.ended.saturating_sub(s.began)));
        seen.truncate(OBSERVATIONS);
    }
    seen.sort_by_key(|s| s.began);
    seen.shrink_to_fit();
    seen
}
