//! Processes of containers that the kernel killed for lack of memory, from the events of the runtime.

use std::sync::Arc;
use std::time::Duration;

use super::{EXIT_FOLLOWS_OOM_WITHIN, Episode, EpisodeStore, ExitRecord};
use crate::view;
use criscope_cri::container_request::ContainerRequest;
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
    /// What was requested for the container.
    pub(crate) request: Option<Arc<ContainerRequest>>,
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
    /// Notes with an exit how many processes the kernel killed just before for lack of memory, without those of known containers: a kill
    /// that is attributed to one container explains no exit of another one. `on_node`: the number on the node, if it is known.
    pub(crate) fn add_oom_kills(&self, exit: &mut ExitRecord, on_node: Option<u32>) {
        let kills = self.episodes().flat_map(|episode| &episode.oom_kills);
        let recent = kills.filter(|kills| kills.last.abs_diff(exit.at) <= EXIT_FOLLOWS_OOM_WITHIN);
        let on_node_known = on_node.unwrap_or_default();
        exit.oom_kills = recent.fold(on_node_known, |left, kills| {
            left.saturating_sub(kills.times)
        });
        exit.is_oom_uncounted = on_node.is_none();
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
        request: Option<Arc<ContainerRequest>>,
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
            kills.request = request;
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
            request,
        });
        times
    }
}
