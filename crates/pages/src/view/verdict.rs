//! The verdict over a node: the trouble of the node itself, and how many of its pods are in trouble, by the kind of trouble and
//! by cause. Pages, commands and JSON have it from here.

mod groups;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::pods::is_stopped_pod;
use super::{EpisodeState, PodState, PodSummary};

pub use self::groups::CauseGroup;

/// A start that takes longer is slow enough to be told, even if nothing has failed.
const SLOW_START_MS: f64 = 30_000.0;

/// Severity of a verdict, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VerdictLevel {
    /// Something does not work.
    Bad,
    /// Something works, but not as it should.
    Warning,
    /// Something is in progress.
    Busy,
    /// Nothing is the matter.
    Good,
    /// Nothing is known.
    Empty,
}

criscope_cri::named! {
    /// Trouble of a pod, or its progress; the worst first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[repr(u8)]
    #[serde(rename_all = "snake_case")]
    pub enum PodTrouble {
        /// The start of the pod, or of one of its containers, fails.
        CannotStart = "cannot_start",
        /// A container is in a crash loop.
        CrashLoop = "crash_loop",
        /// A container, or the sandbox, has ended and was not started again.
        Ended = "ended",
        /// The stop of the pod fails.
        CannotStop = "cannot_stop",
        /// The pod is up, and a probe fails, or the kubelet cannot sync it.
        Unhealthy = "unhealthy",
        /// A container was stopped and not started again.
        Stopped = "stopped",
        /// The pod takes long to start.
        SlowStart = "slow_start",
        /// The pod is being started.
        Starting = "starting",
        /// The pod is being stopped.
        Stopping = "stopping",
    }
}

impl PodTrouble {
    /// The predicate for this number of pods: `cannot start`, `crash-loop`.
    pub const fn predicate(self, count: usize) -> &'static str {
        let is_one = count == 1;
        match self {
            Self::CannotStart => "cannot start",
            Self::CrashLoop if is_one => "crash-loops",
            Self::CrashLoop => "crash-loop",
            Self::Ended if is_one => "has failed",
            Self::Ended => "have failed",
            Self::CannotStop => "cannot stop",
            Self::Unhealthy if is_one => "is unhealthy",
            Self::Unhealthy => "are unhealthy",
            Self::Stopped if is_one => "is stopped",
            Self::Stopped => "are stopped",
            Self::SlowStart if is_one => "is slow to start",
            Self::SlowStart => "are slow to start",
            Self::Starting if is_one => "is starting",
            Self::Starting => "are starting",
            Self::Stopping if is_one => "is stopping",
            Self::Stopping => "are stopping",
        }
    }

    /// Severity.
    pub const fn level(self) -> VerdictLevel {
        match self {
            Self::CannotStart | Self::Ended | Self::CannotStop => VerdictLevel::Bad,
            Self::CrashLoop | Self::Unhealthy | Self::Stopped | Self::SlowStart => {
                VerdictLevel::Warning
            }
            Self::Starting | Self::Stopping => VerdictLevel::Busy,
        }
    }
}

impl PodSummary {
    /// Trouble of the pod; `None` if the pod is up, completed, stopped as a whole or gone.
    pub fn trouble(&self) -> Option<PodTrouble> {
        let is_stop = self.episode.kind == "stop";
        let in_calls = matches!(
            self.episode.state,
            EpisodeState::Open | EpisodeState::Failing | EpisodeState::Failed
        );
        Some(match self.state {
            PodState::Failing | PodState::Failed if is_stop && in_calls => PodTrouble::CannotStop,
            PodState::Failing | PodState::Failed if in_calls => PodTrouble::CannotStart,
            PodState::Failing => PodTrouble::Unhealthy,
            PodState::Failed => PodTrouble::Ended,
            PodState::CrashLoop => PodTrouble::CrashLoop,
            PodState::Stopped if is_stopped_pod(self.state, &self.episode) => return None,
            PodState::Stopped => PodTrouble::Stopped,
            PodState::Starting if self.duration_ms >= SLOW_START_MS => PodTrouble::SlowStart,
            PodState::Starting => PodTrouble::Starting,
            PodState::Stopping => PodTrouble::Stopping,
            PodState::Ok | PodState::Completed | PodState::Gone => return None,
        })
    }

    /// Severity of its trouble.
    pub fn level(&self) -> VerdictLevel {
        match self.trouble() {
            Some(trouble) => trouble.level(),
            None if self.state == PodState::Ok => VerdictLevel::Good,
            None => VerdictLevel::Empty,
        }
    }

    /// The group of its cause, if it is in trouble and its cause says more than its state.
    pub fn cause_group(&self) -> Option<CauseGroup> {
        let trouble = self.trouble()?;
        match trouble {
            PodTrouble::CrashLoop | PodTrouble::Ended if self.oom_kills > 0 => {
                Some(CauseGroup::Memory)
            }
            _ if trouble.level() > VerdictLevel::Warning => None,
            _ => CauseGroup::from_cause(&self.cause),
        }
    }
}

/// Trouble of the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrouble {
    /// The kind of trouble: `backend_down`, `no_kubelet`. Names are stable.
    pub cause: String,
    /// The trouble and its consequence, in one sentence.
    pub text: String,
}

/// The verdict over a node and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeVerdict {
    /// The whole verdict in one sentence.
    pub headline: String,
    /// Trouble of the node itself, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node: Vec<NodeTrouble>,
    /// Number of pods in memory that are not gone.
    pub pods: usize,
    /// Number of pods in memory that were stopped or are gone.
    #[serde(skip_serializing_if = "is_zero_count")]
    pub gone: usize,
    /// Number of pods by their kind of trouble.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub troubles: BTreeMap<PodTrouble, usize>,
    /// Number of pods by the cause of their trouble.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<CauseGroup, usize>,
}

/// A piece of the sentence of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictPart {
    /// The words.
    pub text: String,
    /// Severity; `None` for words between other parts.
    pub level: Option<VerdictLevel>,
    /// The pods that it is about, if it is about some.
    pub trouble: Option<PodTrouble>,
    /// The cause that it is about, if it is about one.
    pub cause: Option<CauseGroup>,
}

impl VerdictPart {
    fn between(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            level: None,
            trouble: None,
            cause: None,
        }
    }

    fn with_level(text: String, level: VerdictLevel) -> Self {
        Self {
            text,
            level: Some(level),
            trouble: None,
            cause: None,
        }
    }
}

impl NodeVerdict {
    /// The verdict over these pods, on a node with this trouble.
    pub fn new<'a>(pods: impl IntoIterator<Item = &'a PodSummary>, node: Vec<NodeTrouble>) -> Self {
        let mut verdict = Self {
            node,
            ..Self::default()
        };
        for pod in pods {
            match pod.state {
                PodState::Gone => verdict.gone += 1,
                state if is_stopped_pod(state, &pod.episode) => verdict.gone += 1,
                _ => verdict.pods += 1,
            }
            if let Some(trouble) = pod.trouble() {
                *verdict.troubles.entry(trouble).or_default() += 1;
            }
            if let Some(cause) = pod.cause_group() {
                *verdict.causes.entry(cause).or_default() += 1;
            }
        }
        verdict.headline = verdict.to_string();
        verdict
    }

    /// Adds the verdict over another node, whose own trouble is told with its name.
    pub fn join(&mut self, other: Self) {
        self.node.extend(other.node);
        self.pods += other.pods;
        self.gone += other.gone;
        for (trouble, count) in other.troubles {
            *self.troubles.entry(trouble).or_default() += count;
        }
        for (cause, count) in other.causes {
            *self.causes.entry(cause).or_default() += count;
        }
        self.headline = self.to_string();
    }

    /// Severity.
    pub fn level(&self) -> VerdictLevel {
        if !self.node.is_empty() {
            return VerdictLevel::Bad;
        }
        let worst = self.troubles.keys().map(|trouble| trouble.level()).min();
        worst.unwrap_or(if self.pods == 0 {
            VerdictLevel::Empty
        } else {
            VerdictLevel::Good
        })
    }

    /// The pieces of the sentence: trouble of the node, then that of pods, then its causes.
    pub fn parts(&self) -> Vec<VerdictPart> {
        let mut parts = Vec::new();
        for trouble in &self.node {
            let text = format!("{}.", sentence_case(&trouble.text));
            parts.push(VerdictPart::with_level(text, VerdictLevel::Bad));
            parts.push(VerdictPart::between(" "));
        }
        parts.extend(self.parts_of_pods());
        parts
    }

    fn parts_of_pods(&self) -> Vec<VerdictPart> {
        let mut parts = Vec::new();
        for (trouble, count) in &self.troubles {
            let predicate = trouble.predicate(*count);
            let text = if parts.is_empty() {
                format!("{} {predicate}", count_of_pods(*count, self.pods))
            } else {
                parts.push(VerdictPart::between(", "));
                format!("{count} {predicate}")
            };
            parts.push(VerdictPart {
                text,
                level: Some(trouble.level()),
                trouble: Some(*trouble),
                cause: None,
            });
        }
        if parts.is_empty() {
            let level = self.level_of_pods();
            return vec![VerdictPart::with_level(self.nothing_wrong(), level)];
        }
        let mut causes: Vec<_> = self.causes.iter().collect();
        causes.sort_by_key(|(cause, count)| (Reverse(**count), **cause));
        for (n, (cause, count)) in causes.into_iter().enumerate() {
            parts.push(VerdictPart::between(if n == 0 { ": " } else { ", " }));
            parts.push(VerdictPart {
                text: format!("{count} {}", cause.noun(*count)),
                level: Some(VerdictLevel::Good),
                trouble: None,
                cause: Some(*cause),
            });
        }
        parts.push(VerdictPart::between("."));
        parts
    }

    fn nothing_wrong(&self) -> String {
        match (self.pods, self.gone) {
            (0, 0) => "No pod is known yet.".to_owned(),
            (0, 1) => "No pod runs; one has ended.".to_owned(),
            (0, gone) => format!("No pod runs; {gone} have ended."),
            (1, _) => "The only pod is up.".to_owned(),
            (pods, _) => format!("All {pods} pods are up."),
        }
    }

    /// Severity if no pod is in trouble.
    fn level_of_pods(&self) -> VerdictLevel {
        match self.pods {
            0 => VerdictLevel::Empty,
            _ => VerdictLevel::Good,
        }
    }
}

impl fmt::Display for NodeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts()
            .iter()
            .try_for_each(|part| f.write_str(&part.text))
    }
}

/// `7 of 21 pods`, or `the one pod`.
fn count_of_pods(count: usize, pods: usize) -> String {
    match (count, pods) {
        // A pod that is being stopped may be the last one.
        (1, 0 | 1) => "The only pod".to_owned(),
        (count, pods) if count >= pods => format!("All {count} pods"),
        (count, pods) => format!("{count} of {pods} pods"),
    }
}

// serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_count(count: &usize) -> bool {
    *count == 0
}

/// The sentence with its first letter in upper case, unless it begins with a name in mixed case.
fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase());
    first.into_iter().flatten().chain(letters).collect()
}

#[cfg(test)]
mod tests;
