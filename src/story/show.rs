//! An episode as it is shown.

use super::book::Tale;
use super::cause;
use super::timeline::Phase;
use super::told::millis;
use super::view;

impl Tale {
    /// With its calls; `now` in microseconds since 1970.
    pub(super) fn view(&self, now: u64) -> view::Episode {
        let shares = self.shares();
        let phases = Phase::ALL.into_iter().filter_map(|phase| {
            let time = shares[phase as usize];
            (time > 0).then(|| view::Phase {
                phase: phase.name().to_owned(),
                ms: millis(time),
            })
        });
        let mut episode = view::Episode {
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
            phases: phases.collect(),
            retries: self.retries,
            failures: self.failures,
            pulled: self.pulled,
            calls: self.calls.iter().map(|c| c.view(self.began)).collect(),
            calls_forgotten: self.calls_forgotten,
            exits: self.exits.iter().map(|e| e.view()).collect(),
        };
        episode.headline = cause::headline(&episode, now);
        episode
    }
}
