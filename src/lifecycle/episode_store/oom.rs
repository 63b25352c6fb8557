//! Processes of containers that the kernel killed for lack of memory, from the events of the runtime.

use super::Episode;
use crate::cri::subject::ContainerIdentity;

/// Most containers of an episode of which they are kept.
const MOST: usize = 16;

/// Reports without a count within this many microseconds are of one kill: with cgroup v1 the kernel notifies each time that a limit is hit until
/// the killed process has gone.
const TOGETHER: u64 = 1_000_000;

/// The OOM kills in a run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) struct OomKills {
    pub(in crate::lifecycle) container: ContainerIdentity,
    /// Processes that were killed, if the runtime counts them; or else kills as far as reports tell them apart.
    pub(in crate::lifecycle) times: u32,
    /// The first and the last, in microseconds since 1970.
    pub(in crate::lifecycle) first: u64,
    pub(in crate::lifecycle) last: u64,
}

impl Episode {
    /// Counts an OOM kill in a container at this time, in microseconds since 1970. `total`: those in its run so far, if the runtime
    /// counts them.
    pub(super) fn note_oom(&mut self, container: &ContainerIdentity, at: u64, total: Option<u32>) {
        let known = self
            .oom_kills
            .iter_mut()
            .find(|it| it.container == *container);
        if let Some(kills) = known {
            match total {
                Some(total) => kills.times = kills.times.max(total),
                None if at.abs_diff(kills.last) < TOGETHER => return,
                None => kills.times = kills.times.saturating_add(1),
            }
            kills.first = kills.first.min(at);
            kills.last = kills.last.max(at);
            return;
        }
        if self.oom_kills.len() >= MOST {
            self.oom_kills.remove(0);
        }
        self.oom_kills.push(OomKills {
            container: container.clone(),
            times: total.unwrap_or(1).max(1),
            first: at,
            last: at,
        });
    }
}
