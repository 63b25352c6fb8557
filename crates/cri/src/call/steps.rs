//! Steps of the built-in runtime within a call, recorded where they happen.
//!
//! For other runtimes criscope observes processes and, if the runtime exports them, spans. The built-in runtime records its
//! own steps, each with a name, a time and an outcome.

mod kind;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

pub use self::kind::{RuntimeStep, Worker};
use super::trace::SpanPlacement;
use super::transfer::Transfer;

/// Most steps recorded of one call; enough for a pull of an image with a hundred layers.
const MOST: usize = 320;

/// Most remarks kept of one call.
const MAX_REMARKS: usize = 8;

crate::named! {
    /// How a step ended. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum StepOutcome {
        /// It succeeded.
        Ok = "ok",
        /// It failed.
        Error = "error",
        /// It was dropped before its end.
        Cancelled = "cancelled",
    }
}

/// A step.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// Kind of step.
    pub step: RuntimeStep,
    /// The type of a CNI plugin, the name of an NRI plugin or of the OCI runtime, or the digest of a layer.
    pub name: Option<Arc<str>>,
    /// Its span.
    pub span: SpanId,
    /// The span of the enclosing step, or of the call.
    pub parent: SpanId,
    /// When it began.
    pub began: SystemTime,
    /// How long it took and how it ended; `None` while it runs.
    pub ended: Option<(Duration, StepOutcome)>,
    /// What it receives from a server.
    pub transfer: Arc<Transfer>,
    clock: Instant,
}

impl StepRecord {
    /// Its duration so far.
    pub fn took(&self) -> Duration {
        self.ended
            .map_or_else(|| self.clock.elapsed(), |(took, _)| took)
    }
}

/// Called for steps that end after their call.
pub type Late = Box<dyn Fn(&StepRecord) + Send + Sync>;

/// The trace of the steps of a call.
#[derive(Clone, Copy, Debug)]
struct Traced {
    trace_id: TraceId,
    sampled: bool,
}

/// The steps of one call.
#[derive(Debug)]
pub struct RuntimeSteps {
    traced: Option<Traced>,
    root: SpanId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    all: Vec<StepRecord>,
    late: Option<Late>,
    remarks: Remarks,
}

/// Warnings of the runtime about a call that goes on.
#[derive(Debug, Default)]
struct Remarks {
    /// As the runtime wrote them. They may quote secrets.
    unredacted: Vec<String>,
    redacted: Vec<Arc<str>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// A running step.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its index; `None` if it was not recorded because there were too many.
    at: Option<usize>,
    /// Its span.
    pub span: SpanId,
}

impl RuntimeSteps {
    /// Steps of a call with these spans; `None` when traces are off.
    pub fn new(place: Option<&SpanPlacement<'_>>) -> Self {
        Self {
            traced: place.map(|place| Traced {
                trace_id: place.trace_id,
                sampled: place.sampled,
            }),
            root: place.map_or(SpanId::INVALID, |place| place.client),
            state: Mutex::default(),
        }
    }

    /// The CLIENT span of the call, the parent of its steps.
    pub fn root(&self) -> SpanId {
        self.root
    }

    /// Begins a step.
    pub fn begin(&self, step: RuntimeStep, name: Option<Arc<str>>, parent: SpanId) -> Begun {
        let span = RandomIdGenerator::default().new_span_id();
        let mut state = self.state();
        let at = (state.all.len() < MOST).then_some(state.all.len());
        if at.is_some() {
            state.all.push(StepRecord {
                step,
                name,
                span,
                parent,
                began: SystemTime::now(),
                ended: None,
                transfer: Arc::default(),
                clock: Instant::now(),
            });
        }
        Begun { at, span }
    }

    /// The transfer of a running step; `None` if the step was not recorded.
    pub fn transfer(&self, begun: Begun) -> Option<Arc<Transfer>> {
        let state = self.state();
        let record = state.all.get(begun.at?)?;
        Some(Arc::clone(&record.transfer))
    }

    /// Ends a step.
    pub fn end(&self, begun: Begun, outcome: StepOutcome) {
        let mut state = self.state();
        let State { all, late, .. } = &mut *state;
        let Some(record) = begun.at.and_then(|at| all.get_mut(at)) else {
            return;
        };
        record.transfer.end();
        record.ended = Some((record.clock.elapsed(), outcome));
        if let Some(late) = late {
            late(record);
        }
    }

    /// All steps so far, in the order in which they began.
    pub fn read(&self) -> Vec<StepRecord> {
        self.state().all.clone()
    }

    /// Reads the steps when the call ends. `late` is called for steps that end later.
    pub fn close(&self, late: Option<Late>) -> Vec<StepRecord> {
        let mut state = self.state();
        state.late = late;
        state.all.clone()
    }

    /// Adds a warning about the call, in a sentence. It may quote what a registry or an image says: it is not shown before
    /// [`Self::redact_remarks`]. A second equal one is dropped, and so are those beyond a bound.
    pub fn remark(&self, text: &str) {
        let unredacted = &mut self.state().remarks.unredacted;
        if unredacted.len() < MAX_REMARKS && unredacted.iter().all(|known| known != text) {
            unredacted.push(text.to_owned());
        }
    }

    /// Redacts the remarks so far, which may be shown from then on.
    pub fn redact_remarks(&self, redact: impl Fn(&str) -> Box<str>) {
        let remarks = &mut self.state().remarks;
        let redacted = remarks.unredacted.drain(..);
        let redacted = redacted.map(|text| Arc::from(redact(&text)));
        remarks.redacted.extend(redacted);
    }

    /// The redacted remarks.
    pub fn remarks(&self) -> Vec<Arc<str>> {
        self.state().remarks.redacted.clone()
    }

    /// The W3C trace context of a step, for a process that it starts; `None` when traces are off.
    pub fn traceparent(&self, span: SpanId) -> Option<String> {
        let traced = self.traced?;
        let flags = u8::from(traced.sampled);
        Some(format!("00-{}-{span}-{flags:02x}", traced.trace_id))
    }

    /// The current step, as `cni plugin bridge`; of several, the one that began last.
    pub fn activity(&self) -> Option<String> {
        let state = self.state();
        let going = state
            .all
            .iter()
            .rev()
            .find(|record| record.ended.is_none() && record.step.worker() != Worker::Several)?;
        let name = going.name.as_deref().unwrap_or_default();
        let words = going.step.words();
        Some(match going.step.worker() {
            Worker::Cni => format!("cni plugin {name}"),
            Worker::Oci => format!("oci runtime {name} ({words})"),
            _ => format!("{words} {name}").trim_end().to_owned(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_activity_is_the_step_that_began_last() {
        let steps = RuntimeSteps::new(None);
        assert_eq!(
            (steps.activity(), steps.traceparent(steps.root())),
            (None, None)
        );
        let attach = steps.begin(RuntimeStep::NetworkAttach, None, steps.root());
        assert_eq!(steps.activity(), None, "its plugins are recorded");
        let bridge = steps.begin(RuntimeStep::CniAdd, Some("bridge".into()), attach.span);
        assert_eq!(steps.activity().as_deref(), Some("cni plugin bridge"));
        let shim = steps.begin(RuntimeStep::ShimLaunch, None, steps.root());
        assert_eq!(steps.activity().as_deref(), Some("the launch of the shim"));
        steps.end(shim, StepOutcome::Ok);
        assert_eq!(steps.activity().as_deref(), Some("cni plugin bridge"));
        steps.end(bridge, StepOutcome::Error);
        let all = steps.read();
        assert_eq!(all[1].parent, all[0].span);
        assert_eq!(all[1].ended.map(|(_, how)| how), Some(StepOutcome::Error));
        assert_eq!(all[0].ended, None);
    }

    #[test]
    fn late_steps_are_reported_once() {
        let steps = RuntimeSteps::new(None);
        let early = steps.begin(RuntimeStep::Spec, None, steps.root());
        let late = steps.begin(RuntimeStep::OciCreate, None, steps.root());
        steps.end(early, StepOutcome::Ok);
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let closed = steps.close(Some(Box::new(move |record| {
            assert_eq!(record.step, RuntimeStep::OciCreate);
            count.fetch_add(1, Ordering::Relaxed);
        })));
        assert_eq!(closed.iter().filter(|r| r.ended.is_some()).count(), 1);
        steps.end(late, StepOutcome::Ok);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn remarks_are_shown_once_and_only_when_they_are_redacted() {
        let steps = RuntimeSteps::new(None);
        for n in 0..3 * MAX_REMARKS {
            steps.remark(&format!("secret {}", n / 2));
        }
        assert_eq!(steps.remarks(), Vec::<Arc<str>>::new());
        steps.redact_remarks(|text| text.replace("secret", "hidden").into());
        let remarks = steps.remarks();
        assert_eq!(remarks.len(), MAX_REMARKS);
        assert_eq!((&*remarks[0], &*remarks[1]), ("hidden 0", "hidden 1"));
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        let steps = RuntimeSteps::new(None);
        for _ in 0..2 * MOST {
            let begun = steps.begin(RuntimeStep::LayerFetch, None, steps.root());
            steps.end(begun, StepOutcome::Ok);
        }
        assert_eq!(steps.read().len(), MOST);
    }
}
