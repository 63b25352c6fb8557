//! An episode as it is shown.

use super::diagnosis;
use super::episode_call::millis;
use super::episode_store::{Episode, EpisodeStore};
use super::timeline::Phase;
use super::view;
use crate::call::episode::Kind;

/// Most episodes of a pod that are looked at when one of them is over: one that restarts all the time must not cost more
/// each time.
const LOOKED_AT: usize = 64;

impl EpisodeStore {
    /// An episode with its calls, as one of the newest of its pod; `now` in microseconds since 1970.
    pub(super) fn view(&self, episode: &Episode, now: u64) -> view::Episode {
        let mut shown = episode.view(now);
        let own = || self.of_pod(&episode.pod).take(LOOKED_AT);
        let ends: usize = own().map(|episode| episode.exits.len()).sum();
        // Most pods never come near a crash loop.
        if episode.kind != Kind::Stop && ends >= 2 {
            let others = own().filter(|other| other.number != episode.number);
            let mut all: Vec<_> = others.map(|episode| episode.view(now)).collect();
            all.push(shown.clone());
            diagnosis::mark_crash_loops(&mut all, now);
            shown.crash_loop = all.pop().and_then(|episode| episode.crash_loop);
        }
        shown
    }
}

impl Episode {
    /// With its calls, but alone; `now` in microseconds since 1970.
    pub(super) fn view(&self, now: u64) -> view::Episode {
        let shares = self.shares();
        let phases = EpisodePhase::ALL.into_iter().filter_map(|phase| {
            let time = shares[phase as usize];
            (time > 0).then(|| view::Phase {
                phase: phase.name().to_owned(),
                ms: millis(time),
            })
        });
        let mut shown = view::Episode {
            kind: self.kind.name().to_owned(),
            namespace: self.pod.namespace.to_string(),
            name: self.pod.name.to_string(),
            uid: self.pod.uid.to_string(),
            attempt: self.attempt(),
            container: self.container.as_ref().map(|c| c.name.to_string()),
            sandbox_id: self.sandbox_id.as_deref().map(str::to_owned),
            handler: self.handler.as_deref().unwrap_or_default().to_owned(),
            trace_id: self.ids().trace_id.to_string(),
            state: self.state,
            began_unix_us: self.began,
            duration_ms: millis(self.ended.saturating_sub(self.began)),
            headline: String::new(),
            crash_loop: None,
            phases: phases.collect(),
            retries: self.retries,
            failures: self.failures,
            pulled: self.pulled,
            calls: self.calls.iter().map(|c| c.view(self.began)).collect(),
            calls_forgotten: self.calls_forgotten,
            exits: self.exits.iter().map(|e| e.view()).collect(),
        };
        shown.headline = diagnosis::headline(&shown, now);
        shown
    }
}
