//! Start, duration and outcome of each step, for the progress lines, the waterfall and the JSON.

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde::{Serialize, Serializer};
use tonic::Status;

use super::hint::{self, StepContext};

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDetail {
    /// The error, in the runtime's words if the runtime failed.
    pub error: String,
    /// A recommendation for the user.
    pub hint: Option<String>,
}

/// Why a step may fail.
#[derive(Debug)]
pub enum StepError {
    /// The runtime answered with an error.
    Status(Status),
    /// An unexpected response, or an error on this side.
    Check(FailureDetail),
}

impl StepError {
    /// A failed check without a hint.
    pub fn check(error: impl Into<String>) -> Self {
        Self::Check(FailureDetail {
            error: error.into(),
            hint: None,
        })
    }

    /// A failed check with a hint.
    pub fn hinted(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Check(FailureDetail {
            error: error.into(),
            hint: Some(hint.into()),
        })
    }
}

impl From<Status> for StepError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Success, with a summary.
    Ok(String),
    /// Failure.
    Failed(FailureDetail),
}

/// One step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedStep {
    /// A CRI method, or lower-case words for steps on this side.
    pub name: &'static str,
    /// From the start of the run.
    pub start: Duration,
    /// Duration of the step.
    pub took: Duration,
    /// Outcome of the step.
    pub ended: StepOutcome,
}

impl FinishedStep {
    /// Returns whether it succeeded.
    pub fn ok(&self) -> bool {
        matches!(self.ended, StepOutcome::Ok(_))
    }
}

#[derive(Serialize)]
struct StepJson<'a> {
    name: &'a str,
    start_ms: f64,
    took_ms: f64,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Serialize for FinishedStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (detail, failure) = match &self.ended {
            StepOutcome::Ok(detail) => {
                (Some(detail.as_str()).filter(|text| !text.is_empty()), None)
            }
            StepOutcome::Failed(failure) => (None, Some(failure)),
        };
        StepJson {
            name: self.name,
            start_ms: rounded_millis(self.start),
            took_ms: rounded_millis(self.took),
            ok: self.ok(),
            detail,
            error: failure.map(|failure| failure.error.as_str()),
            hint: failure.and_then(|failure| failure.hint.as_deref()),
        }
        .serialize(serializer)
    }
}

/// Milliseconds with three decimals.
pub(super) fn rounded_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Notified of each step as it happens.
pub trait StepProgress: Send {
    /// A step begins.
    fn begins(&mut self, name: &'static str);
    /// A step ended.
    fn ended(&mut self, step: &FinishedStep);
    /// The pod is about to be removed. Nothing is removed before this is done.
    fn before_removal(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Marks that a step failed; the reason is in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFailed;

/// Set once: the reason why no further step may begin.
pub type RunStopReason = OnceLock<&'static str>;

/// The steps so far, and the running one.
pub struct StepTimeline<'a> {
    began: Instant,
    stop: Option<&'a RunStopReason>,
    current: Option<(&'static str, Instant)>,
    steps: Vec<FinishedStep>,
    progress: &'a mut dyn StepProgress,
}

impl fmt::Debug for StepTimeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline")
            .field("current", &self.current)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl<'a> StepTimeline<'a> {
    /// Lets the observer look at the pod before it is removed.
    pub async fn before_removal(&mut self) {
        self.progress.before_removal().await;
    }

    /// An empty timeline that begins now.
    pub fn new(progress: &'a mut dyn StepProgress, stop: &'a RunStopReason) -> Self {
        Self {
            began: Instant::now(),
            stop: Some(stop),
            current: None,
            steps: Vec::new(),
            progress,
        }
    }

    /// Allows further steps after a stop.
    pub fn go_on(&mut self) {
        self.stop = None;
    }

    /// Runs one step: `work` returns its value and a summary. After a stop it fails at once; a running step is not aborted.
    pub async fn step<T>(
        &mut self,
        name: &'static str,
        around: &StepContext<'_>,
        work: impl Future<Output = Result<(T, String), StepError>>,
    ) -> Result<T, StepFailed> {
        self.current = Some((name, Instant::now()));
        self.progress.begins(name);
        if let Some(reason) = self.stop.and_then(RunStopReason::get) {
            self.end(StepOutcome::Failed(FailureDetail {
                error: (*reason).to_owned(),
                hint: None,
            }));
            return Err(StepFailed);
        }
        match work.await {
            Ok((value, detail)) => {
                self.end(StepOutcome::Ok(detail));
                Ok(value)
            }
            Err(error) => {
                self.end(StepOutcome::Failed(match error {
                    StepError::Check(failure) => failure,
                    StepError::Status(status) => hint::explain(name, &status, around),
                }));
                Err(StepFailed)
            }
        }
    }

    /// Runs a step that only succeeds or fails.
    pub async fn call(
        &mut self,
        name: &'static str,
        around: &StepContext<'_>,
        work: impl Future<Output = Result<(), StepError>>,
    ) -> Result<(), StepFailed> {
        let work = async { work.await.map(|()| ((), String::new())) };
        self.step(name, around, work).await
    }

    /// Ends the running step after its work was dropped, and returns its name.
    pub fn break_off(&mut self, failure: FailureDetail) -> Option<&'static str> {
        let (name, _) = self.current?;
        self.end(StepOutcome::Failed(failure));
        Some(name)
    }

    fn end(&mut self, ended: StepOutcome) {
        let Some((name, start)) = self.current.take() else {
            return;
        };
        let step = FinishedStep {
            name,
            start: start.duration_since(self.began),
            took: start.elapsed(),
            ended,
        };
        self.progress.ended(&step);
        self.steps.push(step);
    }

    /// The steps that have ended.
    pub fn into_steps(self) -> Vec<FinishedStep> {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[derive(Default)]
    struct Seen(Vec<String>);

    impl StepProgress for Seen {
        fn begins(&mut self, name: &'static str) {
            self.0.push(format!("{name}?"));
        }
        fn ended(&mut self, step: &FinishedStep) {
            self.0.push(format!("{}={}", step.name, step.ok()));
        }
    }

    #[tokio::test]
    async fn every_step_that_begins_ends_once() {
        let mut seen = Seen::default();
        let stop = RunStopReason::new();
        let mut timeline = StepTimeline::new(&mut seen, &stop);
        let around = StepContext::default();
        let good = timeline.step("one", &around, async { Ok((7, "seven".into())) });
        assert_eq!(good.await, Ok(7));
        let bad = timeline.step("two", &around, async {
            Err::<((), String), _>(Status::new(Code::Internal, "no").into())
        });
        assert_eq!(bad.await, Err(StepFailed));
        {
            let never = timeline.step::<()>("three", &around, std::future::pending());
            let mut never = Box::pin(never);
            assert!(futures_util::poll!(never.as_mut()).is_pending());
        }
        let interrupted = FailureDetail {
            error: "interrupted".into(),
            hint: None,
        };
        assert_eq!(timeline.break_off(interrupted.clone()), Some("three"));
        assert_eq!(timeline.break_off(interrupted), None);

        let steps = timeline.into_steps();
        let ok: Vec<_> = steps.iter().map(|step| (step.name, step.ok())).collect();
        assert_eq!(ok, [("one", true), ("two", false), ("three", false)]);
        assert!(steps[0].start + steps[0].took <= steps[1].start);
        assert_eq!(
            seen.0,
            [
                "one?",
                "one=true",
                "two?",
                "two=false",
                "three?",
                "three=false"
            ]
        );
    }

    #[tokio::test]
    async fn after_a_stop_only_the_running_step_ends() {
        let mut seen = Seen::default();
        let stop = RunStopReason::new();
        let mut timeline = StepTimeline::new(&mut seen, &stop);
        let around = StepContext::default();
        let one = timeline.step("one", &around, async {
            stop.set("interrupted").expect("first");
            Ok((1, String::new()))
        });
        assert_eq!(one.await, Ok(1));
        let two = timeline.step::<()>("two", &around, async { panic!("must not run") });
        assert_eq!(two.await, Err(StepFailed));
        timeline.go_on();
        let three = timeline.step("three", &around, async { Ok((3, String::new())) });
        assert_eq!(three.await, Ok(3));
        let steps = timeline.into_steps();
        let ok: Vec<_> = steps.iter().map(FinishedStep::ok).collect();
        assert_eq!(ok, [true, false, true]);
    }
}
