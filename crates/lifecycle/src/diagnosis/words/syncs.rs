//! Sentences on the kubelet's own spans.

use std::fmt::{self, Display, Formatter};

use super::{duration, times};
use crate::diagnosis::syncs::{FailingSync, WorkBeforeCalls, WorkInGap};
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
            Self::Unknown => f.write_str(": volumes, admission or its queue"),
            Self::Node(fact) => write!(f, ": {fact}"),
            Self::Failed { sync, tries } => {
                f.write_str(": ")?;
                failed(f, sync, *tries)
            }
            Self::InSync(took) => {
                write!(
                    f,
                    ", {} of it in syncPod: volumes or cgroups",
                    duration(*took)
                )
            }
            Self::Before(took) => {
                let took = duration(*took);
                write!(f, ", {took} of it before syncPod: admission or its queue")
            }
        }
    }
}

impl Display for WorkInGap<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside(SyncKind::Terminating) => f.write_str(
                "; it was in syncTerminatingPod, where preStop hooks that are no exec run",
            ),
            Self::Inside(kind) => write!(f, "; it was in {}", kind.name()),
            Self::Between(None) => f.write_str("; it was between two syncs of the pod"),
            Self::Between(Some(sync)) => {
                f.write_str("; it was between two syncs of the pod, ")?;
                failed(f, sync, 1)
            }
        }
    }
}

impl Display for FailingSync<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("kubelet: ")?;
        failed(f, self.sync, 1)?;
        let ago = duration(self.now.since(self.sync.ended));
        match self.sync.tries {
            1 => write!(f, " ({ago} ago)"),
            n => write!(f, " ({n} tries, the last {ago} ago)"),
        }
    }
}
