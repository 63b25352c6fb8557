//! Views of episodes.

use super::diagnosis::Diagnoser;
use super::episode_store::{Episode, EpisodeStore};
use super::timeline::EpisodePhase;
use super::view;
use criscope_cri::units::times::{UnixMicros, millis};

/// Number of episodes of a pod that are read when one of them is closed. It bounds the cost for a pod that restarts all the time.
const MAX_EPISODES_READ: usize = 64;

impl EpisodeStore {
    /// An episode with its calls, as one of the newest of its pod.
    pub(super) fn view(&self, episode: &Episode, now: UnixMicros) -> view::EpisodeView {
        let others = self.episodes_of(&episode.pod).take(MAX_EPISODES_READ);
        let others = others.filter(|other| other.number != episode.number);
        let all: Vec<_> = [episode].into_iter().chain(others).collect();
        episode.view(&Diagnoser::new(&all, self.node(), now))
    }
}

impl Episode {
    /// The view with its calls. `pods` include this episode.
    pub(super) fn view<'a>(&'a self, pods: &Diagnoser<'a>) -> view::EpisodeView {
        let waits = self
            .waits()
            .into_iter()
            .map(|wait| view::InitContainerWaitView {
                before: wait.before,
                offset_ms: millis(wait.began.since(self.began)),
                duration_ms: millis(wait.took),
                container: wait.container.to_owned(),
            });
        view::EpisodeView {
            calls: self.calls.iter().map(|c| c.view(self.began)).collect(),
            waits: waits.collect(),
            kubelet: self
                .syncs
                .iter()
                .map(|sync| sync.view(self.began))
                .collect(),
            ..self.summary(pods)
        }
    }

    /// The view without its calls. `pods` include this episode.
    pub(super) fn summary<'a>(&'a self, pods: &Diagnoser<'a>) -> view::EpisodeView {
        let shares = self.shares_to(self.began + self.shown_duration(pods.now()));
        let phases = EpisodePhase::ALL.into_iter().filter_map(|phase| {
            let time = shares[phase as usize];
            (!time.is_zero()).then(|| view::PhaseDuration {
                phase: phase.name().to_owned(),
                ms: millis(time),
            })
        });
        let diagnosis = pods.cause(self);
        let crash_loop = pods.crash_loop(self);
        let loop_step = crash_loop
            .as_ref()
            .and_then(|crash_loop| pods.next_step(crash_loop, self));
        view::EpisodeView {
            kind: self.kind.name().to_owned(),
            namespace: self.pod.namespace.to_string(),
            name: self.pod.name.to_string(),
            uid: self.pod.uid.to_string(),
            attempt: self.attempt(),
            container: self.container.as_ref().map(|c| c.name.to_string()),
            ephemeral: pods.is_ephemeral(self),
            sandbox_id: self.sandbox_id.as_deref().map(str::to_owned),
            handler: self.handler.as_deref().unwrap_or_default().to_owned(),
            trace_id: self.ids().trace_id.to_string(),
            state: self.shown_state(),
            began_unix_us: self.began,
            duration_ms: millis(self.shown_duration(pods.now())),
            before_cri_ms: self.before_cri().map(millis),
            headline: diagnosis.to_string(),
            cause: diagnosis.name().to_owned(),
            raw_message: diagnosis.raw_message(pods.programs()),
            next: pods
                .next_step(&diagnosis, self)
                .map(|step| step.to_string()),
            cause_state: diagnosis.state(),
            origin: diagnosis.origin().map(|origin| origin.name().to_owned()),
            crash_loop: crash_loop.as_ref().map(ToString::to_string),
            crash_loop_next: loop_step.map(|step| step.to_string()),
            deleted_unix_us: self.deleted,
            phases: phases.collect(),
            back_off_ms: self.back_off_ms(pods.now()),
            retries: self.retries,
            failures: self.failures,
            pulled: self.pulled,
            calls_forgotten: self.calls_forgotten,
            exits: self.exits.iter().map(|e| e.view()).collect(),
            oom_kills: self.oom_kills.iter().map(|kills| kills.view()).collect(),
            sandbox_death: pods.sandbox_death(self),
            ..view::EpisodeView::default()
        }
    }

    /// Time in which the kubelet waited before it tried again.
    fn back_off_ms(&self, now: UnixMicros) -> f64 {
        let calls = self.calls.iter().map(|call| view::WorkSpan {
            begin_ms: millis(call.began_at().since(self.began)),
            end_ms: millis(call.ended_at().since(self.began)),
            failed: call.is_bad(),
        });
        let waits = self.waits().into_iter().map(|wait| {
            let begin_ms = millis(wait.began.since(self.began));
            view::WorkSpan {
                begin_ms,
                end_ms: begin_ms + millis(wait.took),
                failed: false,
            }
        });
        view::back_off_ms(
            calls.chain(waits).collect(),
            millis(self.shown_duration(now)),
        )
    }
}
