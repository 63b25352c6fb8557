//! Init containers that failed, were run again after the kubelet's back-off, and succeeded. `words::start` makes the sentence.

use std::time::Duration;

use super::{history, outcome};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, ExitRecord};
use criscope_cri::call::episode::Kind;

/// Init containers of a start that succeeded at a later try.
#[derive(Debug)]
pub(crate) struct InitRetries<'a> {
    /// In the order of their first start.
    pub(super) containers: Vec<RetriedInit<'a>>,
    /// From the first call of the start to the last.
    pub(super) total: Duration,
}

/// An init container that succeeded at a later try.
#[derive(Debug)]
pub(crate) struct RetriedInit<'a> {
    pub(super) container: &'a str,
    /// The ends of the failed runs, in order.
    pub(super) failed: Vec<&'a ExitRecord>,
    /// The total time from the end of a failed run to the next run.
    pub(super) waited: Duration,
    /// The duration of the run that succeeded.
    pub(super) ran: Duration,
    /// From the begin of the first run to the end of the last.
    spent: Duration,
}

impl<'a> InitRetries<'a> {
    /// The init containers of this start that failed at first.
    pub(super) fn from_start(start: &'a Episode, pod: &[&'a Episode]) -> Option<Self> {
        if start.kind != Kind::Start {
            return None;
        }
        let names = start.started_containers();
        let containers = names.filter_map(|name| retried(name, start, pod));
        let containers: Vec<_> = containers.collect();
        (!containers.is_empty()).then(|| Self {
            containers,
            total: start.duration(),
        })
    }

    /// The total time from the end of a failed run to the next run.
    pub(super) fn waited(&self) -> Duration {
        self.containers.iter().map(|retried| retried.waited).sum()
    }

    /// Returns whether the containers took most of the start.
    pub(super) fn are_most(&self) -> bool {
        let spent = self.containers.iter().map(|retried| retried.spent);
        2 * spent.sum::<Duration>() >= self.total
    }

    /// Returns whether this exit is that of a failed run.
    pub(super) fn include(&self, exit: &ExitRecord) -> bool {
        let mut failed = self.containers.iter().flat_map(|retried| &retried.failed);
        failed.any(|known| *known == exit)
    }
}

fn retried<'a>(name: &'a str, start: &Episode, pod: &[&'a Episode]) -> Option<RetriedInit<'a>> {
    let own: Vec<_> = pod
        .iter()
        .copied()
        .filter(|episode| episode.pod.attempt == start.pod.attempt)
        .collect();
    let mut exits: Vec<_> = history::exits(&own)
        .filter(|exit| *exit.container == *name)
        .collect();
    exits.sort_by_key(|exit| exit.at);
    let done = exits.iter().position(|exit| outcome::is_init(exit, &own))?;
    let failed: Vec<_> = exits[..done]
        .iter()
        .copied()
        .filter(|exit| exit.code != 0 && !exit.stop_requested)
        .collect();
    let starts = history::calls(&own).filter(|call| call.has_started_container(name));
    let starts: Vec<&EpisodeCall> = starts.collect();
    let waits = failed.iter().filter_map(|exit| {
        let later = starts.iter().filter(|call| call.began_at() > exit.at);
        let next = later.map(|call| call.began_at()).min()?;
        Some(next.since(exit.at))
    });
    let waited = waits.sum();
    let (first, last) = (*failed.first()?, exits[done]);
    Some(RetriedInit {
        container: name,
        waited,
        ran: last.ran,
        spent: last.at.since(first.at - first.ran),
        failed,
    })
}
