//! Processes of containers that the kernel killed for lack of memory, from the events of the runtime.

use std::time::Duration;

use super::{EXIT_FOLLOWS_OOM_WITHIN, Episode, EpisodeStore};
use crate::view;
use criscope_cri::subject::ContainerIdentity;
use criscope_cri::units::times::UnixMicros;

/// Number of containers of an episode whose OOM kills are kept.
const MAX_OOM_CONTAINERS: usize = 16;

/// Reports without a count within this time are about one kill: with cgroup v1 the kernel notifies each time that a limit is hit,
/// until the killed process has gone.
const SAME_OOM_KILL_WITHIN: Duration = Duration::from_secs(1);

/// The OOM kills in a run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerOomKills {
    pub(crate) container: ContainerIdentity,
    /// Killed processes, if the runtime counts them; else the number of kills that reports can tell apart.
    pub(crate) times: u32,
    /// The first kill.
    pub(crate) first: UnixMicros,
    /// The last kill.
    pub(crate) last: UnixMicros,
}

impl ContainerOomKills {
    /// The view of these kills.
    pub(crate) fn view(&self) -> view::OomKillsView {
        view::OomKillsView {
            container: self.container.name.to_string(),
            attempt: self.container.attempt,
            kills: self.times,
            first_unix_us: self.first,
            last_unix_us: self.last,
        }
    }
}

impl EpisodeStore {
    /// The number of processes that the kernel killed just before `at` for lack of memory, without those of known containers: a kill
    /// that is attributed to one container explains no exit of another one. `on_node`: the number on the node.
    pub(crate) fn unattributed_oom_kills(&self, on_node: u32, at: UnixMicros) -> u32 {
        let kills = self.episodes().flat_map(|episode| &episode.oom_kills);
        let recent = kills.filter(|kills| kills.last.abs_diff(at) <= EXIT_FOLLOWS_OOM_WITHIN);
        recent.fold(on_node, |left, kills| left.saturating_sub(kills.times))
    }
}

impl Episode {
    /// Counts an OOM kill in a container at this time. `total`: the number of kills in its run so far, if the runtime counts them.
    /// Returns the number of new kills.
    pub(super) fn note_oom(
        &mut self,
        container: &ContainerIdentity,
        at: UnixMicros,
        total: Option<u32>,
    ) -> u32 {
        let known = self
            .oom_kills
            .iter_mut()
            .find(|kills| kills.container == *container);
        if let Some(kills) = known {
            let before = kills.times;
            match total {
                Some(total) => kills.times = kills.times.max(total),
                None if at.abs_diff(kills.last) < SAME_OOM_KILL_WITHIN => return 0,
                None => kills.times = kills.times.saturating_add(1),
            }
            kills.first = kills.first.min(at);
            kills.last = kills.last.max(at);
            return kills.times - before;
        }
        if self.oom_kills.len() >= MAX_OOM_CONTAINERS {
            self.oom_kills.remove(0);
        }
        let times = total.unwrap_or(1).max(1);
        self.oom_kills.push(ContainerOomKills {
            container: container.clone(),
            times,
            first: at,
            last: at,
        });
        times
    }
}
