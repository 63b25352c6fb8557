//! Sentences on episodes that took long.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::{duration, subject, times};
use crate::diagnosis::cause::{SlowDetail, SlowPhase};
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
            SlowDetail::Network { worker, whole } => network(f, &share, worker.as_ref(), *whole),
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
            SlowDetail::Calls { .. } => self.calls(f, &share),
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

    fn calls(&self, f: &mut Formatter<'_>, share: &str) -> fmt::Result {
        let SlowDetail::Calls {
            name,
            longest,
            count,
            worker,
            seen,
        } = &self.detail
        else {
            return Ok(());
        };
        let Some(longest) = longest else {
            return write!(f, "{share} in {name}");
        };
        let during = subject(longest);
        if let Some(worker) = worker {
            let took = duration(worker.took.min(self.took));
            let total = duration(self.total);
            return write!(f, "{took} of {total} in {worker}, during {during}");
        }
        write!(f, "{share} in {during}")?;
        if *count != 1 {
            let most = duration(longest.took());
            let times = times(*count);
            write!(f, " (called {times}, the longest took {most})")?;
        }
        if *seen {
            write!(f, ", in the runtime itself")?;
        }
        Ok(())
    }
}

fn network(
    f: &mut Formatter<'_>,
    share: &str,
    worker: Option<&LongestWorker<'_>>,
    whole: bool,
) -> fmt::Result {
    let Some(worker) = worker else {
        return write!(f, "network: {share}");
    };
    let during = subject(worker.call);
    if whole {
        return write!(f, "network: {share} in {worker}, during {during}");
    }
    write!(
        f,
        "network: {share} in CNI plugins, most of it ({}) in {}, during {during}",
        duration(worker.took),
        worker.name
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
