//! Sentences on the kubelet's own spans.

use std::fmt::{self, Display, Formatter};

use super::exit::ago_of;
use super::{duration, times};
use crate::diagnosis::reasons::{one_of, words};
use crate::diagnosis::syncs::{FailingSync, WorkBeforeCalls, WorkInGap};
use crate::diagnosis::waits::StepsBeforeCalls;
use crate::kubelet::syncs::{PodSync, SyncKind};

/// `syncPod failed twice: ...`.
fn failed(f: &mut Formatter<'_>, sync: &PodSync, tries: u32) -> fmt::Result {
    write!(f, "{} failed", sync.kind.name())?;
    if tries > 1 {
        write!(f, " {}", times(tries as usize))?;
    }
    match &sync.error {
        Some(error) => write!(f, ": {error}"),
        None => Ok(()),
    }
}

impl Display for WorkBeforeCalls<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(steps) => {
                write!(f, ": {}", one_of(&steps.words()))
            }
            Self::Node(fact) => write!(f, ": {fact}"),
            Self::Failed { sync, tries } => {
                f.write_str(": ")?;
                failed(f, sync, *tries)
            }
            Self::InSync(took, steps) => {
                write!(
                    f,
                    ", {} of it in syncPod: {}",
                    duration(*took),
                    one_of(&words(steps))
                )
            }
            Self::Before(took, steps) => {
                let took = duration(*took);
                write!(
                    f,
                    ", {took} of it before syncPod: {}",
                    one_of(&words(steps))
                )
            }
        }
    }
}

impl StepsBeforeCalls {
    /// The words of all steps.
    pub(super) fn words(&self) -> Vec<&'static str> {
        [words(&self.sandbox), words(&self.sync)].concat()
    }
}

impl Display for WorkInGap<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside(SyncKind::Terminating) => f.write_str(
                "; the kubelet was in syncTerminatingPod, where preStop hooks by HTTP or sleep run",
            ),
            Self::Inside(kind) => write!(f, "; the kubelet was in {}", kind.name()),
            Self::Between(None) => f.write_str("; the kubelet was between two syncs of the pod"),
            Self::Between(Some(sync)) => {
                f.write_str("; the kubelet was between two syncs of the pod, ")?;
                failed(f, sync, sync.tries)
            }
        }
    }
}

impl Display for FailingSync<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the kubelet's ")?;
        failed(f, self.sync, 1)?;
        let ago = ago_of(self.now.since(self.sync.ended));
        match self.sync.tries {
            1 => write!(f, " ({ago})"),
            n => write!(f, " ({n} tries, the last {ago})"),
        }
    }
}
