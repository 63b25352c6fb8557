//! What to do about the diagnosis of an episode or a pod.

use super::Diagnoser;
use crate::diagnosis::Diagnosis;
use crate::diagnosis::next_step::{NextStep, StepContext};
use crate::episode_store::Episode;

impl Diagnoser<'_> {
    /// The step for this diagnosis of an episode.
    pub(crate) fn next_step(
        &self,
        diagnosis: &Diagnosis<'_>,
        episode: &Episode,
    ) -> Option<NextStep> {
        let pod = self.pod(episode)?;
        let context = StepContext {
            pod: &episode.pod,
            episodes: &pod.episodes,
            programs: self.programs(),
            is_gone: pod.last_stop().is_some(),
        };
        diagnosis.next_step(&context)
    }

    /// The step for this diagnosis of the newest pod.
    pub(crate) fn step_of_newest(&self, diagnosis: &Diagnosis<'_>) -> Option<NextStep> {
        self.next_step(diagnosis, self.newest?)
    }

    /// Its text.
    pub(crate) fn next_of_newest(&self, diagnosis: &Diagnosis<'_>) -> Option<String> {
        let step = self.step_of_newest(diagnosis)?;
        Some(step.to_string())
    }
}
