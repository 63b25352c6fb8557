//! Telling what is done: every step of the runtime's work goes through here, into its metrics, and into the record of the
//! call it is done for.
//!
//! Which call that is goes with the work, also into tasks and threads of its own ([`carried`], [`carried_over`]). Work that
//! no call asked for, such as what follows from the end of a container, is measured all the same.

mod images;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use criscope_cni::{Invocation, PluginObserver, PluginRun, Verb};
use opentelemetry::trace::SpanId;

use crate::call::steps::{Begun, RuntimeStep, RuntimeSteps, StepOutcome, Worker};
use crate::runtime::process::Unreadable;
use crate::telemetry::handles::{RuntimeWork, ShimEnd};

tokio::task_local! {
    static CURRENT: Option<Current>;
}

/// For which call, and within which of its steps.
#[derive(Clone, Debug)]
struct Current {
    phases: Arc<RuntimeSteps>,
    span: SpanId,
}

fn current() -> Option<Current> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Work for a call.
pub fn serve<F: Future>(
    phases: Option<Arc<RuntimeSteps>>,
    work: F,
) -> impl Future<Output = F::Output> {
    let current = phases.map(|phases| Current {
        span: phases.root(),
        phases,
    });
    CURRENT.scope(current, work)
}

/// Work that becomes a task of its own, and is done for the same call.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current(), work)
}

/// The same for work that goes to a thread which may wait.
pub fn carried_over<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let current = current();
    move || CURRENT.sync_scope(current, work)
}

/// The W3C trace context for processes started here, as `TRACEPARENT` has it; `None` when traces are off.
pub fn traceparent() -> Option<String> {
    let current = current()?;
    current.phases.traceparent(current.span)
}

/// Measures steps. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<OnceLock<RuntimeWork>>);

impl Watch {
    /// From now on in these metrics too. The first ones stay.
    pub fn measure(&self, metrics: RuntimeWork) {
        let _again = self.0.set(metrics);
    }

    /// The metrics, if there are any.
    pub fn metrics(&self) -> Option<&RuntimeWork> {
        self.0.get()
    }

    /// A shim ended before its pod.
    pub fn shim_lost(&self, how: ShimEnd) {
        if let Some(metrics) = self.metrics() {
            metrics.shim_lost(how);
        }
    }

    /// A message between the daemon and a shim could not be read.
    pub fn shim_message_unreadable(&self, what: Unreadable) {
        if let Some(metrics) = self.metrics() {
            metrics.shim_message_unreadable(what as usize);
        }
    }

    /// A step, from here to its end, or to where it is dropped. `name` says whose it is: see
    /// [`StepRecord::name`](crate::call::steps::StepRecord::name).
    pub async fn step<T, E>(
        &self,
        phase: RuntimeStep,
        name: Option<&str>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let step = self.begin(phase, name);
        let result = CURRENT.scope(step.within(), work).await;
        step.end(result.is_ok());
        result
    }

    /// The same for work that blocks.
    pub fn blocking_step<T, E>(
        &self,
        phase: RuntimeStep,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let step = self.begin(phase, None);
        let result = CURRENT.sync_scope(step.within(), work);
        step.end(result.is_ok());
        result
    }

    fn begin(&self, phase: RuntimeStep, name: Option<&str>) -> Step {
        self.begin_within(phase, name, current())
    }

    fn begin_within(
        &self,
        phase: RuntimeStep,
        name: Option<&str>,
        within: Option<Current>,
    ) -> Step {
        let name: Option<Arc<str>> = name.map(Arc::from);
        Step {
            watch: self.clone(),
            phase,
            began: Instant::now(),
            place: within.map(|within| {
                let begun = within.phases.begin(phase, name.clone(), within.span);
                (within.phases, begun)
            }),
            name,
            outcome: StepOutcome::Cancelled,
        }
    }
}

impl PluginObserver for Watch {
    fn wrap<'a>(&'a self, invocation: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a> {
        let phase = match invocation.verb {
            Verb::Add => RuntimeStep::CniAdd,
            Verb::Del => RuntimeStep::CniDel,
            Verb::Check => RuntimeStep::CniCheck,
            Verb::Status => RuntimeStep::CniStatus,
            Verb::Gc => RuntimeStep::CniGc,
        };
        Box::pin(self.step(phase, Some(invocation.plugin), run))
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let trace = traceparent().map(|trace| ("TRACEPARENT", trace));
        trace.into_iter().collect()
    }
}

/// A step that goes on. It ends when it is dropped.
#[derive(Debug)]
struct Step {
    watch: Watch,
    phase: RuntimeStep,
    name: Option<Arc<str>>,
    began: Instant,
    place: Option<(Arc<RuntimeSteps>, Begun)>,
    outcome: StepOutcome,
}

impl Step {
    fn within(&self) -> Option<Current> {
        let (phases, begun) = self.place.as_ref()?;
        Some(Current {
            phases: Arc::clone(phases),
            span: begun.span,
        })
    }

    fn end(self, well: bool) {
        self.end_with(match well {
            true => StepOutcome::Ok,
            false => StepOutcome::Error,
        });
    }

    fn end_with(mut self, outcome: StepOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if let Some((phases, begun)) = &self.place {
            phases.end(*begun, self.outcome);
        }
        if let Some(metrics) = self.watch.metrics() {
            metrics.ended(self.phase, self.outcome, took);
            if let (Worker::Cni, Some(plugin)) = (self.phase.worker(), &self.name) {
                metrics.plugin_ended(plugin, self.phase, self.outcome, took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use opentelemetry::trace::TraceId;

    use super::*;
    use crate::call::trace::SpanPlacement;

    #[tokio::test]
    async fn steps_are_parts_of_each_other_also_on_other_tasks_and_threads() {
        let phases = Arc::new(RuntimeSteps::new(None));
        let watch = Watch::default();
        let inner = watch.clone();
        serve(Some(Arc::clone(&phases)), async {
            let made = watch.step(RuntimeStep::NetworkAttach, None, async {
                let one = carried(async move {
                    let plugin = async { Err::<(), _>("no address") };
                    let failed = inner.step(RuntimeStep::CniAdd, Some("bridge"), plugin);
                    assert!(failed.await.is_err());
                    inner
                });
                let inner = tokio::spawn(one).await.expect("the task ends");
                let two = carried_over(move || {
                    let good = || Ok::<_, Infallible>(());
                    inner.blocking_step(RuntimeStep::Spec, good)
                });
                tokio::task::spawn_blocking(two).await.expect("it ends")
            });
            made.await.expect("it is good");
        })
        .await;
        let all = phases.read();
        let [attach, plugin, spec] = &all[..] else {
            panic!("three steps");
        };
        assert_eq!(attach.parent, phases.root());
        assert_eq!((plugin.parent, spec.parent), (attach.span, attach.span));
        assert_eq!(plugin.name.as_deref(), Some("bridge"));
        let how = |record: &crate::call::steps::StepRecord| record.ended.map(|(_, how)| how);
        assert_eq!(how(plugin), Some(StepOutcome::Error));
        assert_eq!(
            (how(attach), how(spec)),
            (Some(StepOutcome::Ok), Some(StepOutcome::Ok))
        );
    }

    #[tokio::test]
    async fn runs_of_plugins_are_steps_and_carry_their_own_trace_context() {
        let phases = Arc::new(RuntimeSteps::new(Some(&SpanPlacement {
            trace_id: TraceId::from(7u128),
            parent: SpanId::from(1u64),
            parent_is_remote: false,
            server: SpanId::from(2u64),
            client: SpanId::from(3u64),
            state: None,
            link: None,
            sampled: true,
        })));
        let watch = Watch::default();
        for verb in [Verb::Add, Verb::Del] {
            let invocation = Invocation {
                plugin: "bridge",
                verb,
            };
            let environment = || watch.environment();
            let run = Box::pin(async move {
                let [(name, value)] = &environment()[..] else {
                    panic!("one variable");
                };
                Ok(format!("{name}={value}").into_bytes())
            });
            let run = serve(Some(Arc::clone(&phases)), watch.wrap(invocation, run));
            let output = String::from_utf8(run.await.expect("output")).expect("text");
            let step = phases.read().pop().expect("a step");
            let traceparent = phases.traceparent(step.span).expect("traces are on");
            assert_eq!(output, format!("TRACEPARENT={traceparent}"));
            assert_eq!(step.name.as_deref(), Some("bridge"));
            assert!(matches!(step.ended, Some((_, StepOutcome::Ok))));
            let name = format!("cni_{}", verb.name().to_lowercase());
            assert_eq!(step.step.name(), name);
        }
    }

    #[tokio::test]
    async fn what_is_dropped_was_cancelled() {
        let phases = Arc::new(RuntimeSteps::new(None));
        let watch = Watch::default();
        let endless = std::future::pending::<Result<(), Infallible>>();
        let step = watch.step(RuntimeStep::GraceWait, None, endless);
        let serving = serve(Some(Arc::clone(&phases)), step);
        let _late = tokio::time::timeout(std::time::Duration::from_millis(1), serving).await;
        let ended = phases.read()[0].ended.map(|(_, how)| how);
        assert_eq!(ended, Some(StepOutcome::Cancelled));
    }
}
