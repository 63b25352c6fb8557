//! The recorder of steps: each step of the runtime is counted in its metrics, and recorded in the call that it belongs to.
//!
//! The current call and step are task-local. Work that moves to another task or thread keeps them with [`in_scope`] and
//! [`in_scope_blocking`]. Work without a call, such as handling the exit of a container, is also counted. Why these are not
//! `tracing` spans: `docs/adr/0002-steps-of-the-runtime.md`.

mod images;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use criscope_cni::{Invocation, PluginObserver, PluginRun, Verb};
use opentelemetry::trace::SpanId;

use crate::error::shown;
use crate::metrics::{RuntimeWork, ShimEnd, StatsFailure};
use crate::shim_client::Unreadable;
use criscope_cri::call::steps::{Begun, RuntimeStep, RuntimeSteps, StepOutcome, Worker};
use criscope_cri::redact;

tokio::task_local! {
    static CURRENT: Option<Current>;
}

/// The call that the work belongs to, and the current step.
#[derive(Clone, Debug)]
struct Current {
    steps: Arc<RuntimeSteps>,
    span: SpanId,
}

fn current() -> Option<Current> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Runs `work` for a call.
pub(crate) fn in_call<F: Future>(
    steps: Option<Arc<RuntimeSteps>>,
    work: F,
) -> impl Future<Output = F::Output> {
    let current = steps.map(|steps| Current {
        span: steps.root(),
        steps,
    });
    CURRENT.scope(current, work)
}

/// Keeps the current call and step for work that is spawned as a task.
pub(crate) fn in_scope<F: Future>(work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current(), work)
}

/// Keeps the current call and step for work on a blocking thread.
pub(crate) fn in_scope_blocking<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let current = current();
    move || CURRENT.sync_scope(current, work)
}

/// The W3C trace context of the current step, for `TRACEPARENT` of a process; `None` when traces are off.
pub(crate) fn traceparent() -> Option<String> {
    let current = current()?;
    current.steps.traceparent(current.span)
}

/// Adds a warning about an image to the story of the current call, and to the log.
pub(crate) fn remark(image: &str, text: &str) {
    remark_within(current().as_ref(), image, text);
}

fn remark_within(within: Option<&Current>, image: &str, text: &str) {
    let (image, shown) = (redact::image_reference(image), shown(&text));
    tracing::warn!(target: "criscope::runtime::steps", event = "image.remark", %image, "{shown}");
    if let Some(within) = within {
        within.steps.remark(text);
    }
}

/// Like [`remark_within`], for words of a registry in which secrets are hidden.
fn server_remark_within(within: Option<&Current>, image: &str, text: &str) {
    let image = redact::image_reference(image);
    tracing::warn!(target: "criscope::runtime::steps", event = "image.remark", %image, "{text}");
    if let Some(within) = within {
        within.steps.remark(text);
    }
}

/// Records steps. Clones share their metrics.
#[derive(Clone, Debug, Default)]
pub struct StepRecorder(Arc<OnceLock<RuntimeWork>>);

impl StepRecorder {
    /// Sets the metrics to count in, unless they are already set.
    pub fn measure(&self, metrics: RuntimeWork) {
        let _again = self.0.set(metrics);
    }

    /// The metrics, once set.
    pub fn metrics(&self) -> Option<&RuntimeWork> {
        self.0.get()
    }

    /// Records a shim that was lost before its pod was stopped.
    pub fn shim_lost(&self, how: ShimEnd) {
        if let Some(metrics) = self.metrics() {
            metrics.shims_lost.inc(how);
        }
    }

    /// Records that a shim of containerd did not report the statistics of a container.
    pub fn shim_statistics_failed(&self, why: StatsFailure) {
        if let Some(metrics) = self.metrics() {
            metrics.shim_statistics_failed.inc(why);
        }
    }

    /// Records an undecodable message between the daemon and a shim.
    pub fn shim_message_unreadable(&self, what: Unreadable) {
        if let Some(metrics) = self.metrics() {
            metrics.shim_messages_unreadable.inc(what);
        }
    }

    /// Runs `work` as a step, which counts as cancelled if it is dropped before its end. For `name` see
    /// [`StepRecord::name`](criscope_cri::call::steps::StepRecord::name).
    pub async fn step<T, E>(
        &self,
        what: RuntimeStep,
        name: Option<&str>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let step = self.begin(what, name);
        let result = CURRENT.scope(step.within(), work).await;
        step.end(result.is_ok());
        result
    }

    /// Runs blocking `work` as a step.
    pub fn blocking_step<T, E>(
        &self,
        what: RuntimeStep,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let step = self.begin(what, None);
        let result = CURRENT.sync_scope(step.within(), work);
        step.end(result.is_ok());
        result
    }

    fn begin(&self, what: RuntimeStep, name: Option<&str>) -> Step {
        self.begin_within(what, name, current())
    }

    fn begin_within(&self, what: RuntimeStep, name: Option<&str>, within: Option<Current>) -> Step {
        let name: Option<Arc<str>> = name.map(Arc::from);
        Step {
            recorder: self.clone(),
            what,
            began: Instant::now(),
            place: within.map(|within| {
                let begun = within.steps.begin(what, name.clone(), within.span);
                (within.steps, begun)
            }),
            name,
            outcome: StepOutcome::Cancelled,
        }
    }
}

impl PluginObserver for StepRecorder {
    fn wrap<'a>(&'a self, invocation: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a> {
        let what = match invocation.verb {
            Verb::Add => RuntimeStep::CniAdd,
            Verb::Del => RuntimeStep::CniDel,
            Verb::Check => RuntimeStep::CniCheck,
            Verb::Status => RuntimeStep::CniStatus,
            Verb::Gc => RuntimeStep::CniGc,
        };
        Box::pin(self.step(what, Some(invocation.plugin), run))
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let trace = traceparent().map(|trace| ("TRACEPARENT", trace));
        trace.into_iter().collect()
    }
}

/// A step in progress. It ends when it is dropped.
#[derive(Debug)]
struct Step {
    recorder: StepRecorder,
    what: RuntimeStep,
    name: Option<Arc<str>>,
    began: Instant,
    place: Option<(Arc<RuntimeSteps>, Begun)>,
    outcome: StepOutcome,
}

impl Step {
    fn within(&self) -> Option<Current> {
        let (steps, begun) = self.place.as_ref()?;
        Some(Current {
            steps: Arc::clone(steps),
            span: begun.span,
        })
    }

    fn end(self, well: bool) {
        self.end_with(if well {
            StepOutcome::Ok
        } else {
            StepOutcome::Error
        });
    }

    fn end_with(mut self, outcome: StepOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if let Some((steps, begun)) = &self.place {
            steps.end(*begun, self.outcome);
        }
        if let Some(metrics) = self.recorder.metrics() {
            metrics.ended(self.what, self.outcome, took);
            if let (Worker::Cni, Some(plugin)) = (self.what.worker(), &self.name) {
                metrics.plugin_ended(plugin, self.what, self.outcome, took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use opentelemetry::trace::TraceId;

    use super::*;
    use criscope_cri::call::trace::SpanPlacement;

    #[tokio::test]
    async fn steps_are_nested_across_tasks_and_threads() {
        let steps = Arc::new(RuntimeSteps::new(None));
        let recorder = StepRecorder::default();
        let inner = recorder.clone();
        in_call(Some(Arc::clone(&steps)), async {
            let made = recorder.step(RuntimeStep::NetworkAttach, None, async {
                let one = in_scope(async move {
                    let plugin = async { Err::<(), _>("no address") };
                    let failed = inner.step(RuntimeStep::CniAdd, Some("bridge"), plugin);
                    assert!(failed.await.is_err());
                    inner
                });
                let inner = tokio::spawn(one).await.expect("the task ends");
                let two = in_scope_blocking(move || {
                    let good = || Ok::<_, Infallible>(());
                    inner.blocking_step(RuntimeStep::Spec, good)
                });
                tokio::task::spawn_blocking(two).await.expect("it ends")
            });
            made.await.expect("it succeeds");
        })
        .await;
        let all = steps.read();
        let [attach, plugin, spec] = &all[..] else {
            panic!("three steps");
        };
        assert_eq!(attach.parent, steps.root());
        assert_eq!((plugin.parent, spec.parent), (attach.span, attach.span));
        assert_eq!(plugin.name.as_deref(), Some("bridge"));
        let how = |record: &criscope_cri::call::steps::StepRecord| record.ended.map(|(_, how)| how);
        assert_eq!(how(plugin), Some(StepOutcome::Error));
        assert_eq!(
            (how(attach), how(spec)),
            (Some(StepOutcome::Ok), Some(StepOutcome::Ok))
        );
    }

    #[tokio::test]
    async fn plugin_calls_are_steps_with_their_own_trace_context() {
        let steps = Arc::new(RuntimeSteps::new(Some(&SpanPlacement {
            trace_id: TraceId::from(7u128),
            parent: SpanId::from(1u64),
            parent_is_remote: false,
            server: SpanId::from(2u64),
            client: SpanId::from(3u64),
            state: None,
            link: None,
            sampled: true,
        })));
        let recorder = StepRecorder::default();
        for verb in [Verb::Add, Verb::Del] {
            let invocation = Invocation {
                plugin: "bridge",
                verb,
            };
            let environment = || recorder.environment();
            let run = Box::pin(async move {
                let [(name, value)] = &environment()[..] else {
                    panic!("one variable");
                };
                Ok(format!("{name}={value}").into_bytes())
            });
            let run = in_call(Some(Arc::clone(&steps)), recorder.wrap(invocation, run));
            let output = String::from_utf8(run.await.expect("output")).expect("text");
            let step = steps.read().pop().expect("a step");
            let traceparent = steps.traceparent(step.span).expect("traces are on");
            assert_eq!(output, format!("TRACEPARENT={traceparent}"));
            assert_eq!(step.name.as_deref(), Some("bridge"));
            assert!(matches!(step.ended, Some((_, StepOutcome::Ok))));
            let name = format!("cni_{}", verb.name().to_lowercase());
            assert_eq!(step.step.name(), name);
        }
    }

    #[tokio::test]
    async fn a_dropped_step_is_cancelled() {
        let steps = Arc::new(RuntimeSteps::new(None));
        let recorder = StepRecorder::default();
        let endless = std::future::pending::<Result<(), Infallible>>();
        let step = recorder.step(RuntimeStep::GraceWait, None, endless);
        let serving = in_call(Some(Arc::clone(&steps)), step);
        let _late = tokio::time::timeout(std::time::Duration::from_millis(1), serving).await;
        let ended = steps.read()[0].ended.map(|(_, how)| how);
        assert_eq!(ended, Some(StepOutcome::Cancelled));
    }
}
