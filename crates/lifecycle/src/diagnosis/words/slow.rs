//! Sentences on episodes that took long.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::{duration, subject, times};
use crate::diagnosis::cause::{SlowCalls, SlowDetail, SlowPhase};
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
            return write!(f, "; {usual}");
        }
        let took = duration(call.took());
        write!(f, "; {} took {took}, {usual}", call.method.name())
    }
}

impl SlowPhase<'_> {
    /// Writes the phase and its details.
    fn write_phase(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // `9.50 s of 9.90 s`
        let share = format!("{} of {}", duration(self.took), duration(self.total));
        match &self.detail {
            SlowDetail::Network(None) => write!(f, "network: {share}"),
            SlowDetail::Network(Some(worker)) => self.network(f, &share, worker),
            SlowDetail::Pull {
                images,
                longest,
                layer,
            } => pull(f, &share, *images, *longest, layer.as_ref()),
            SlowDetail::Outside { longest, work } => {
                self.outside(f, &share, *longest)?;
                work.as_ref().map_or(Ok(()), |work| write!(f, "{work}"))
            }
            SlowDetail::Init { longest: None, .. } => write!(f, "init containers: {share}"),
            SlowDetail::Init {
                waits: 1,
                longest: Some((name, _)),
            } => write!(f, "init container {name} ran for {share}"),
            SlowDetail::Init {
                waits,
                longest: Some((name, took)),
            } => write!(
                f,
                "{waits} init containers ran for {share}, {} of it {name}",
                duration(*took)
            ),
            SlowDetail::Stop {
                container,
                exit,
                again,
            } => {
                let name = container.unwrap_or("a container");
                match exit {
                    Some(exit) if exit.code == SIGKILL_EXIT_CODE => write!(
                        f,
                        "{share} until container {name} was killed: it did not end when asked (exit code {SIGKILL_EXIT_CODE})"
                    )?,
                    Some(exit) => write!(
                        f,
                        "{share} until container {name} ended when asked (exit code {})",
                        exit.code
                    )?,
                    None => write!(f, "{share} waiting for container {name} to end")?,
                }
                if *again {
                    write!(f, ", which was then started again")?;
                }
                Ok(())
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
        write!(f, "kubelet: {share} passed between CRI calls")?;
        let Some((gap, call)) = longest else {
            return Ok(());
        };
        let (long, before) = (duration(gap), subject(call));
        if 100 * gap >= 99 * self.took {
            write!(f, ", before {before}")
        } else if 2 * gap >= self.took {
            write!(f, ", most of it ({long}) before {before}")
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
            "network: {share} in CNI plugins, most of it ({most}) in {name}, during {during}"
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
