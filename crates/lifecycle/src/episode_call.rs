//! A call of an episode: its record, and the runtime's observed work for it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::SpanId;
use serde::{Deserialize, Serialize};

use super::call_sink::RuntimeSpan;
use super::kubelet::probes::FailedProbe;
use super::kubelet::pulls::PullQueue;
use super::process_scanner::{Observation, WorkKind};
use super::texts::SharedTexts;
use super::transfer_words::transfer_words;
use super::usual::UsualAtEnd;
use super::view;
use criscope_cri::Method;
use criscope_cri::call::steps::{RuntimeSteps, StepRecord, Worker};
use criscope_cri::call::{
    Call, CallFacts, CallRecord, CallStage, CallState, Ending, FaultKind, Outcome, Source,
};
use criscope_cri::container_request::ResourceLimits;
use criscope_cri::status::Code;
use criscope_cri::units::times::{UnixMicros, millis, whole_micros};

/// Upper bound of pieces of work per call; the longest are kept.
const MAX_WORK: usize = 24;

/// A call of an episode. The serde form is a line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EpisodeCall {
    /// The record that the flight recorder has too, until something is added to this one.
    #[serde(flatten)]
    record: Arc<CallRecord>,
    /// Set if the same call had failed before in the episode.
    #[serde(skip)]
    pub(super) retry: bool,
    /// Set if criscope went down while the call was in flight. The journal tells so by the lines around this one.
    #[serde(skip)]
    pub(super) is_lost: bool,
    /// Set if the kubelet went away during this hook, with which it had begun a stop.
    #[serde(skip)]
    pub(super) is_broken_off: bool,
    /// Set if no call had named its pod before, and the runtime listed all containers of the pod as running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) was_listed_up: bool,
    #[serde(rename = "seen", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) work: Vec<ObservedWork>,
    /// Set if processes were scanned during the call: then a call without work had no process at work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) scanned: bool,
    /// The exec probe that had failed before (StopContainer, or ExecSync of a hook).
    #[serde(
        rename = "failed_probe",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) probe: Option<FailedProbe>,
    /// The other pulls that this one waited for (PullImage).
    #[serde(rename = "queued", default, skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<Box<PullQueue>>,
    /// What was usual for such a call when it ended.
    #[serde(rename = "usual", default, skip_serializing_if = "Option::is_none")]
    pub(super) usual: Option<Box<UsualAtEnd>>,
    /// Warnings of the built-in runtime, such as that an image is for another platform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) remarks: Vec<Arc<str>>,
}

/// A piece of work of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObservedWork {
    #[serde(rename = "work")]
    pub(super) kind: WorkKind,
    pub(super) name: Arc<str>,
    /// The command of a CNI plugin: `ADD` or `DEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<Arc<str>>,
    #[serde(rename = "doing", default, skip_serializing_if = "Option::is_none")]
    pub(super) activity: Option<Arc<str>>,
    pub(super) began: UnixMicros,
    pub(super) ended: UnixMicros,
    /// Set for a step of the built-in runtime, which has exact times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) own: bool,
    /// The number of spans between this span and the span of the call; 0 for other work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) depth: u16,
}

fn is_zero(depth: &u16) -> bool {
    *depth == 0
}

impl Deref for EpisodeCall {
    type Target = CallRecord;

    fn deref(&self) -> &CallRecord {
        &self.record
    }
}

impl EpisodeCall {
    /// A call with its observed work: from the process scanner, or the steps of the built-in runtime.
    pub(super) fn new(
        record: Arc<CallRecord>,
        observations: Vec<Observation>,
        steps: Option<&RuntimeSteps>,
    ) -> Self {
        let mut work: Vec<_> = observations
            .into_iter()
            .map(ObservedWork::observed)
            .collect();
        if let Some(steps) = steps {
            // The steps do not tell what holds them up.
            work.retain(|work| work.kind == WorkKind::Blocked);
            work.extend(steps.read().iter().filter_map(ObservedWork::from_step));
        }
        work.extend(ObservedWork::injected(&record));
        Self {
            record,
            retry: false,
            is_lost: false,
            is_broken_off: false,
            was_listed_up: false,
            work: longest(work),
            scanned: false,
            probe: None,
            queue: None,
            usual: None,
            remarks: steps.map(RuntimeSteps::remarks).unwrap_or_default(),
        }
    }

    /// The record, for a change: copies it if the flight recorder has it too.
    pub(super) fn record_mut(&mut self) -> &mut CallRecord {
        Arc::make_mut(&mut self.record)
    }

    /// Changes the limits of a CreateContainer.
    pub(super) fn update_limits(&mut self, limits: ResourceLimits) {
        if let CallFacts::Create(request) = &mut self.record_mut().facts {
            Arc::make_mut(request).update(limits);
        }
    }

    /// Notes whether processes were scanned while the call was in flight.
    pub(super) fn scanned(mut self, scanned: bool) -> Self {
        self.scanned = scanned;
        self
    }

    /// The call as one that was lost because criscope went down at this time. The caller's connection was cut, and a runtime cancels the
    /// work of a cut connection.
    pub(super) fn lost_at(mut self, at: UnixMicros) -> Self {
        self.is_lost = true;
        self.record_mut().state = CallState::Ended(Outcome {
            ending: Ending::Error,
            code: Code::Unavailable,
            source: Source::Proxy,
            message: Some("criscope went down during the call".into()),
            elapsed: at.since(self.began_at()),
        });
        self
    }

    /// The call as one that is in flight at this time, in a process that hands over.
    pub(super) fn in_flight_at(mut self, now: UnixMicros) -> Self {
        let age = now.since(self.began_at());
        self.is_lost = false;
        self.record_mut().state = CallState::InFlight {
            stage: CallStage::Waiting,
            age,
        };
        self
    }

    /// A call in flight.
    pub(super) fn in_flight(call: &Call, observations: Vec<Observation>) -> Self {
        let record = Arc::new(CallRecord::in_flight(call));
        Self::new(record, observations, call.steps.get().map(AsRef::as_ref))
    }

    /// Returns whether it has started a container.
    pub(super) fn has_started(&self) -> bool {
        self.method == Method::StartContainer && self.is_good()
    }

    /// Returns whether it has started the container with this name.
    pub(super) fn has_started_container(&self, name: &str) -> bool {
        self.has_started() && self.container_name() == Some(name)
    }

    /// The CLIENT span of the call, the parent of the runtime's spans.
    pub(super) fn client_span(&self) -> Option<SpanId> {
        self.spans.as_ref().map(|spans| spans.client)
    }

    /// Returns whether the call has failed. A hook never fails a pod: the kubelet goes on, or stops the container. But one that went with
    /// criscope or with the kubelet has no result.
    pub(super) fn is_bad(&self) -> bool {
        let has_no_result = self.is_lost || self.is_broken_off;
        (self.method != Method::ExecSync || has_no_result) && self.record.is_bad()
    }

    /// Adds work that arrived after the end of the call.
    pub(super) fn add_work(&mut self, more: impl IntoIterator<Item = ObservedWork>) {
        let mut work = std::mem::take(&mut self.work);
        work.extend(more);
        self.work = longest(work);
    }

    /// Shares the texts of the work.
    pub(super) fn share_texts(&mut self, texts: &mut SharedTexts) {
        self.work
            .iter_mut()
            .for_each(|work| work.share_texts(texts));
        self.remarks.iter_mut().for_each(|text| texts.share(text));
    }

    /// Returns whether the call created a sandbox.
    pub(super) fn is_new_sandbox(&self) -> bool {
        self.method.makes_sandbox() && self.is_good()
    }

    /// The object within the pod: an image, a container's name, or empty for the sandbox itself.
    pub(super) fn target(&self) -> &str {
        match self.method {
            Method::PullImage => self.image.as_deref().unwrap_or_default(),
            _ => self.container_name().unwrap_or_default(),
        }
    }

    /// The view of the call in an episode that began at `from`.
    pub(super) fn view(&self, from: UnixMicros) -> view::CallView {
        view::CallView {
            offset_ms: millis(self.began_at().since(from)),
            retry: self.retry,
            details: self.work.iter().map(|work| work.view(from)).collect(),
            remarks: self
                .remarks
                .iter()
                .map(|text| (**text).to_owned())
                .collect(),
            ..view::CallView::from_record(self)
        }
    }
}

impl ObservedWork {
    /// A span of the runtime.
    pub(super) fn from_span(span: &RuntimeSpan) -> Self {
        Self {
            kind: WorkKind::Runtime,
            name: Arc::clone(&span.name),
            command: None,
            activity: None,
            began: UnixMicros::from(span.began),
            ended: UnixMicros::from(span.ended),
            own: false,
            depth: span.depth,
        }
    }

    /// A step of the built-in runtime; `None` for a step with sub-steps.
    fn from_step(record: &StepRecord) -> Option<Self> {
        let words = record.step.words();
        let name = record.name.as_deref();
        let (kind, name, activity) = match record.step.worker() {
            Worker::Several => return None,
            Worker::Cni => (WorkKind::Cni, name.unwrap_or(words).into(), None),
            Worker::Oci => (
                WorkKind::Oci,
                name.unwrap_or_default().into(),
                Some(words.into()),
            ),
            Worker::Own => {
                let whole = format!("{words} {}", name.unwrap_or_default());
                let reading = record.transfer.read();
                let words = reading.map(|reading| {
                    transfer_words(&reading, record.took(), record.ended.is_none()).into()
                });
                (WorkKind::Runtime, whole.trim_end().into(), words)
            }
        };
        let began = UnixMicros::from(record.began);
        Some(Self {
            kind,
            name,
            command: record.step.cni_command().map(Arc::from),
            activity,
            began,
            ended: began + whole_micros(record.took()),
            own: true,
            depth: 0,
        })
    }

    /// The time that an injected fault held a call; `None` if none did.
    fn injected(record: &CallRecord) -> Option<Self> {
        let fault = record
            .fault
            .filter(|fault| fault.kind() != FaultKind::Fail)?;
        let began = record.began_at();
        Some(Self {
            kind: WorkKind::Injected,
            name: fault.kind().name().into(),
            command: None,
            activity: None,
            began,
            ended: began + whole_micros(fault.held()),
            own: true,
            depth: 0,
        })
    }

    /// A process seen by the scanner.
    fn observed(observation: Observation) -> Self {
        Self {
            kind: observation.work,
            name: observation.name,
            command: observation.command,
            activity: observation.activity,
            began: UnixMicros::from(observation.began),
            ended: UnixMicros::from(observation.last_seen),
            own: false,
            depth: 0,
        }
    }

    /// Shares the texts.
    pub(super) fn share_texts(&mut self, texts: &mut SharedTexts) {
        let own = [&mut self.command, &mut self.activity];
        let own = own.into_iter().filter_map(Option::as_mut);
        own.chain([&mut self.name])
            .for_each(|text| texts.share(text));
    }

    /// The duration. A process may have worked for longer than it was observed.
    pub(super) fn took(&self) -> Duration {
        self.ended.since(self.began)
    }

    /// Returns whether the time counts as network.
    pub(super) fn is_network(&self) -> bool {
        self.kind == WorkKind::Cni
    }

    /// Returns whether the scanner saw a process at work.
    pub(super) fn is_process(&self) -> bool {
        !self.own && self.kind != WorkKind::Runtime
    }

    fn view(&self, from: UnixMicros) -> view::CallDetail {
        let source = if self.own {
            "runtime"
        } else if self.is_process() {
            "process"
        } else {
            "span"
        };
        view::CallDetail {
            what: self.kind.name().to_owned(),
            name: (*self.name).to_owned(),
            command: self.command.as_deref().map(str::to_owned),
            doing: self.activity.as_deref().map(str::to_owned),
            offset_ms: millis(self.began.since(from)),
            duration_ms: millis(self.took()),
            source: source.to_owned(),
        }
    }
}

/// Limits the work to the longest pieces, in the order in which they began.
fn longest(mut work: Vec<ObservedWork>) -> Vec<ObservedWork> {
    if work.len() > MAX_WORK {
        work.sort_by_key(|piece| std::cmp::Reverse(piece.took()));
        work.truncate(MAX_WORK);
    }
    work.sort_by_key(|piece| piece.began);
    work.shrink_to_fit();
    work
}
