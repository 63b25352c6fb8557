//! Applies events of containers and sandboxes to the store and the journal, and counts exits, OOM kills and deaths of sandboxes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Aggregator;
use crate::container_events::{ContainerEvent, ContainerFact, RunningContainers};
use crate::diagnosis::death;
use crate::episode_store::{ExitChange, ExitRecord};
use crate::journal::JournalLine;
use criscope_cri::call::CallRecord;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// An exit is counted this long after its event: ContainerStatus may know the reason better, and a sandbox may have ended by a
/// StopPodSandbox that has not returned yet.
const EXIT_SETTLES_AFTER: Duration = Duration::from_secs(5);

/// Number of exits that may wait to be counted. If there are more, the oldest is counted earlier.
const MAX_WAITING_EXITS: usize = 1024;

/// State kept between events.
#[derive(Debug, Default)]
pub(super) struct ContainerEventState {
    runs: RunningContainers,
    /// Exits that are to be counted, and when.
    uncounted: VecDeque<(UnixMicros, Arc<PodIdentity>, ExitRecord)>,
    /// Ends of sandboxes that are to be counted, and when.
    ended_sandboxes: VecDeque<(UnixMicros, Arc<PodIdentity>)>,
}

impl Aggregator {
    /// Applies an event of a container or sandbox.
    pub(super) fn container_event(&mut self, event: &ContainerEvent) {
        let pod = &event.pod;
        match self.container_events.runs.handle_event(event) {
            Some(ContainerFact::Ended(exit)) => self.exited(pod, &event.id, exit),
            Some(ContainerFact::OutOfMemory(container, kills)) => {
                self.write(Some(JournalLine::oom(pod, &container, event.at, kills)));
                let new = self
                    .parts
                    .stories
                    .store()
                    .note_oom(pod, &container, event.at, kills);
                self.metrics.oom_kills(new);
            }
            Some(ContainerFact::SandboxEnded(end)) => {
                self.note_stops_in_flight();
                self.write(Some(JournalLine::sandbox_end(pod, &end)));
                self.parts.stories.store().note_sandbox_end(pod, end);
                let due = self.now() + EXIT_SETTLES_AFTER;
                let waiting = &mut self.container_events.ended_sandboxes;
                waiting.push_back((due, Arc::clone(pod)));
                if waiting.len() > MAX_WAITING_EXITS
                    && let Some(&(due, _)) = waiting.front()
                {
                    self.count_sandbox_deaths(due);
                }
            }
            None => {}
        }
    }

    /// Records the exit of the container in a ContainerStatus, if it is new.
    pub(super) fn container_status(&mut self, record: &CallRecord) {
        let (Some(state), Some(pod), Some(container)) =
            (&record.container_state, &record.pod, &record.container)
        else {
            return;
        };
        let Some(exit) = &state.exit else { return };
        self.note_stops_in_flight();
        let id = record.container_id.as_deref();
        let mut ended = ExitRecord::new(container, state.started_at, exit);
        if ended.code != 0 {
            let now = self.now();
            let kills = self.watch.oom_kills(ended.at, now);
            let store = self.parts.stories.store();
            store.add_oom_kills(&mut ended, kills);
        }
        let noted = self.parts.stories.store().note_exit(pod, id, ended.clone());
        if noted != ExitChange::Nothing {
            self.write(Some(JournalLine::exit(pod, id, &ended)));
        }
        if noted == ExitChange::New && ended.at >= self.counts_from {
            self.metrics.exit(&ended);
        }
    }

    /// Tells the store the requests to stop or remove that are not answered yet.
    pub(super) fn note_stops_in_flight(&self) {
        let mut calls = (self.parts.in_flight)();
        calls.retain(|call| call.method.takes_away());
        let calls = self.parts.stories.in_flight(&calls);
        self.parts.stories.store().note_stops_in_flight(calls);
    }

    fn exited(&mut self, pod: &Arc<PodIdentity>, id: &str, mut exit: ExitRecord) {
        self.note_stops_in_flight();
        let now = self.now();
        if exit.code != 0 {
            let kills = self.watch.oom_kills(exit.at, now);
            let store = self.parts.stories.store();
            store.add_oom_kills(&mut exit, kills);
        }
        let noted = {
            let mut store = self.parts.stories.store();
            store.note_exit(pod, Some(id), exit.clone())
        };
        if noted != ExitChange::Nothing {
            self.write(Some(JournalLine::exit(pod, Some(id), &exit)));
        }
        if noted == ExitChange::New && exit.at >= self.counts_from {
            let waiting = &mut self.container_events.uncounted;
            waiting.push_back((now + EXIT_SETTLES_AFTER, Arc::clone(pod), exit));
            if waiting.len() > MAX_WAITING_EXITS
                && let Some(&(due, ..)) = waiting.front()
            {
                self.count_exits(due);
            }
        }
    }

    /// Counts the exits and ends of sandboxes that are settled by this time.
    pub(super) fn count_settled(&mut self, now: UnixMicros) {
        self.count_exits(now);
        self.count_sandbox_deaths(now);
    }

    /// Counts the sandboxes that had ended by this time without a request to stop them.
    fn count_sandbox_deaths(&mut self, now: UnixMicros) {
        let waiting = &mut self.container_events.ended_sandboxes;
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, pod)) = waiting.pop_front() else {
                return;
            };
            let store = self.parts.stories.store();
            let episodes: Vec<_> = store.episodes_of(&pod).collect();
            if death(&episodes, pod.attempt).is_some() {
                self.metrics.sandbox_death();
            }
        }
    }

    /// Counts the exits whose reason is settled by this time.
    fn count_exits(&mut self, now: UnixMicros) {
        let waiting = &mut self.container_events.uncounted;
        while waiting.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, pod, exit)) = waiting.pop_front() else {
                return;
            };
            let known = self.parts.stories.store().exit_of(&pod, &exit);
            self.metrics.exit(&known.unwrap_or(exit));
        }
    }
}
