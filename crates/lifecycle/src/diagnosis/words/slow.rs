//! Sentences on episodes that took long.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::{duration, subject, times};
use crate::diagnosis::cause::{SlowCalls, SlowDetail, SlowPhase, StepsInGap};
use crate::diagnosis::reasons::{one_of, words};
use crate::diagnosis::work::LongestWorker;
use crate::episode_call::EpisodeCall;
use crate::episode_store::SIGKILL_EXIT_CODE;
use criscope_cri::Method;

impl Display for SlowPhase<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_phase(f)?;
        let Some((call, usual)) = &self.usual else {
            return Ok(());
        };
        // If the call took the whole phase, its time has just been said.
        if call.method == Method::PullImage && 100 * call.took() >= 99 * self.took {
            return write!(f, " ({usual})");
        }
        let took = duration(call.took());
        write!(f, "; {} took {took} ({usual})", call.method.name())
    }
}

impl SlowPhase<'_> {
    /// Writes the phase and its details.
    fn write_phase(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // `9.5 s of 9.9 s`
        let share = format!("{} of {}", duration(self.took), duration(self.total));
        match &self.detail {
            SlowDetail::Checkpoint => write!(f, "{share} frozen for a checkpoint"),
            SlowDetail::Network(None) => write!(f, "network: {share}"),
            SlowDetail::Network(Some(worker)) => self.network(f, &share, worker),
            SlowDetail::Pull {
                images,
                longest,
                layer,
            } => pull(f, &share, *images, *longest, layer.as_ref()),
            SlowDetail::Outside {
                longest,
                steps,
                work,
                after,
            } => {
                let most = longest.filter(|(gap, _)| 2 * *gap >= self.took);
                if let (Some((_, next)), Some(container), None) = (most, after, work) {
                    return write_after_start(f, &share, container, next);
                }
                self.outside(f, &share, *longest)?;
                match (steps, work) {
                    (Some(StepsInGap::PostStart(name)), _) => write!(
                        f,
                        "; the kubelet was in syncPod, where a postStart hook of {name} by HTTP or sleep runs"
                    ),
                    (Some(StepsInGap::BeforePull), _) => {
                        f.write_str(": its credential provider, its own disk or its pull queue")
                    }
                    (Some(StepsInGap::BeforeCreate(steps)), _) => {
                        write!(f, "; held up by {}", one_of(&words(steps)))
                    }
                    (None, Some(work)) => write!(f, "{work}"),
                    (None, None) => Ok(()),
                }
            }
            SlowDetail::Init { longest: None, .. } => write!(f, "init containers: {share}"),
            SlowDetail::Init {
                containers: 1,
                longest: Some((name, _)),
            } => write!(f, "init container {name} ran for {share}"),
            SlowDetail::Init {
                containers,
                longest: Some((name, took)),
            } => write!(
                f,
                "{containers} init containers ran for {share}, {} of it {name}",
                duration(*took)
            ),
            SlowDetail::Stop { container, exit } => {
                let name = container.unwrap_or("a container");
                match exit {
                    Some(exit) if exit.is_by_sigkill() => write!(
                        f,
                        "{share} until {name} was killed: {name} did not end when asked (exit code {SIGKILL_EXIT_CODE})"
                    ),
                    Some(exit) => write!(
                        f,
                        "{share} until {name} ended when asked (exit code {})",
                        exit.code
                    ),
                    None => write!(f, "{share} waiting for {name} to end"),
                }
            }
            SlowDetail::Calls(calls) => self.calls(f, &share, calls),
        }
    }
}

impl SlowPhase<'_> {
    fn outside(
        &self,
        f: &mut Formatter<'_>,
        share: &str,
        longest: Option<(Duration, &EpisodeCall)>,
    ) -> fmt::Result {
        let caller = longest.map_or("the kubelet", |(_, call)| call.peer.in_words());
        let caller = caller.trim_start_matches("the ");
        write!(f, "{caller}: {share} went by between CRI calls")?;
        let Some((gap, call)) = longest else {
            return Ok(());
        };
        let (long, before) = (duration(gap), subject(call));
        if 100 * gap >= 99 * self.took {
            write!(f, ", before {before}")
        } else if 2 * gap >= self.took {
            write!(f, ", {long} of it before {before}")
        } else {
            write!(f, ", the longest gap ({long}) before {before}")
        }
    }

    fn network(
        &self,
        f: &mut Formatter<'_>,
        share: &str,
        worker: &LongestWorker<'_>,
    ) -> fmt::Result {
        let during = subject(worker.call);
        if 5 * worker.took >= 4 * self.took {
            return write!(f, "network: {share} in {worker}, during {during}");
        }
        let (most, name) = (duration(worker.took), worker.name);
        write!(
            f,
            "network: {share} in CNI plugins, {most} of it in {name}, during {during}"
        )
    }

    fn calls(&self, f: &mut Formatter<'_>, share: &str, calls: &SlowCalls<'_>) -> fmt::Result {
        let Some(longest) = calls.longest else {
            return write!(f, "{share} in {}", calls.name);
        };
        let during = subject(longest);
        if let Some(worker) = &calls.worker {
            let took = duration(worker.took.min(self.took));
            let total = duration(self.total);
            return write!(f, "{took} of {total} in {worker}, during {during}");
        }
        write!(f, "{share} in {during}")?;
        if calls.count != 1 {
            let most = duration(longest.took());
            let times = times(calls.count);
            write!(f, " (called {times}, the longest took {most})")?;
        }
        if calls.seen {
            write!(f, ", in the runtime itself")?;
        }
        Ok(())
    }
}

/// Writes that most of a start passed between the start of a container and the next call.
///
/// | what the kubelet waits for there | its source in pkg/kubelet |
/// |---|---|
/// | an init container or a startup probe of a sidecar | `computeInitContainerActions` in kuberuntime/kuberuntime_container.go |
/// | a postStart hook; one by exec is a call | `startContainer` there, `Run` in lifecycle/handlers.go |
/// | the creation of the next one failed before its call: its configuration, its image, its log directory | `startContainer` there |
/// | its own work | a busy node, its queue |
fn write_after_start(
    f: &mut Formatter<'_>,
    share: &str,
    container: &str,
    next: &EpisodeCall,
) -> fmt::Result {
    write!(
        f,
        "{share} went by between the start of {container} and {}: {container} is an init container or a sidecar that was not ready, \
         has a postStart hook by HTTP or sleep, or the kubelet was held up; no call shows which",
        subject(next)
    )
}

fn pull(
    f: &mut Formatter<'_>,
    share: &str,
    images: usize,
    longest: Option<&EpisodeCall>,
    layer: Option<&LongestWorker<'_>>,
) -> fmt::Result {
    write!(f, "image pull: {share}")?;
    let Some(longest) = longest else {
        return Ok(());
    };
    let image = longest.image.as_deref().unwrap_or("an image");
    if images > 1 {
        let most = duration(longest.took());
        return write!(f, " pulling {images} images, {most} of it {image}");
    }
    write!(f, " pulling {image}")?;
    match layer {
        Some(step) => write!(f, ", {} of it {}", duration(step.took), step),
        None => Ok(()),
    }
}
