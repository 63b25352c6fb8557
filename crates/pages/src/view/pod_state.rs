//! The state of a pod in lists, and the sentence that goes with it.

use serde::{Deserialize, Serialize};

use super::RawMessage;

/// State of a pod, the worst first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PodState {
    /// A call of its start, restart or stop failed and has not succeeded since, or a probe keeps failing.
    Failing,
    /// A container is in a crash loop.
    CrashLoop,
    /// A start, restart or stop ended with an error or was given up, or a container failed and was not started again.
    Failed,
    /// The pod was stopped and still exists, or a container of it was stopped and was not started again.
    Stopped,
    /// The pod, or one of its containers, is being started.
    Starting,
    /// The pod is being stopped.
    Stopping,
    /// The last start or restart succeeded, and a container runs.
    #[default]
    Ok,
    /// Every container has ended with exit code 0.
    Completed,
    /// The sandbox was removed, the pod was deleted, or its start was broken off.
    Gone,
}

impl PodState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Failing,
        Self::CrashLoop,
        Self::Failed,
        Self::Stopped,
        Self::Starting,
        Self::Stopping,
        Self::Ok,
        Self::Completed,
        Self::Gone,
    ];

    /// The name in JSON and in labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CrashLoop => "crash_loop",
            _ => self.word(),
        }
    }

    /// The state in words.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::CrashLoop => "crash loop",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Ok => "ok",
            Self::Completed => "completed",
            Self::Gone => "gone",
        }
    }

    /// Returns whether the pod needs attention.
    pub const fn is_trouble(self) -> bool {
        matches!(self, Self::Failing | Self::CrashLoop | Self::Failed)
    }

    /// Returns whether calls are expected to follow soon.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Starting | Self::Stopping)
    }

    /// Returns whether a filter's word selects it: the word of a state with `-` or `_` for spaces, `failing` for all in
    /// trouble, `open` for those being started or stopped. `None` if there is no such word.
    pub fn is_meant(self, word: &str) -> Option<bool> {
        match word {
            "failing" => Some(self.is_trouble()),
            "open" => Some(self.is_open()),
            _ => {
                let wanted = word.replace(['_', ' '], "-");
                let mut states = Self::ALL.into_iter();
                let state = states.find(|state| state.word().replace(' ', "-") == wanted)?;
                Some(state == self)
            }
        }
    }

    /// The place in lists.
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::Failing | Self::Failed => 0,
            Self::CrashLoop => 1,
            Self::Stopped | Self::Starting | Self::Stopping => 2,
            Self::Ok | Self::Completed => 3,
            Self::Gone => 4,
        }
    }

    /// This state, which the calls show, together with the state that the headline means: how containers ended, and whether a probe
    /// fails, is in no call. A pod that is gone, or whose calls fail, stays that.
    #[must_use]
    pub fn with_cause(self, of_cause: Option<Self>) -> Self {
        match (self, of_cause) {
            (Self::Ok | Self::Starting, Some(state)) => state,
            // The calls do not show whether a stop is the end of the pod, or that of one run of a container.
            (Self::Stopping, Some(state @ (Self::Stopped | Self::CrashLoop))) => state,
            (Self::CrashLoop, Some(Self::Stopped)) => Self::Stopped,
            // How its containers had ended before the pod was stopped.
            (Self::Stopped, Some(state @ (Self::Completed | Self::Failed))) => state,
            (state, _) => state,
        }
    }
}

/// Verdict on a pod: a sentence, its cause, and the state that it means, if the cause decides one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReason {
    /// The sentence.
    pub text: String,
    /// The kind of cause, as [`super::EpisodeView::cause`].
    pub cause: String,
    /// The text of the error behind it.
    pub raw_message: Option<RawMessage>,
    /// What to do about it.
    pub next: Option<String>,
    /// The state.
    pub state: Option<PodState>,
}

impl From<String> for PodReason {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}
