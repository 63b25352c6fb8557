//! Sentences on pods that were stopped while containers ran.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::ago_of;
use super::exit::code;
use crate::diagnosis::stopped::{PodStop, ShortenedGracePeriod, StoppedContainer};
use crate::episode_store::{ExitRecord, SIGKILL_EXIT_CODE};
use criscope_cri::subject::ExitReason;

/// Number of containers whose end is told.
const MAX_CONTAINER_ENDS: usize = 3;
/// The longest grace period of a hard eviction: the kubelet sets 1 s, and newer versions raise it to their minimum of 2 s.
const HARD_EVICTION_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// The kubelet leaves a container at least this long after its preStop hook.
const MIN_GRACE_AFTER_HOOK: Duration = Duration::from_secs(2);

impl Display for PodStop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pod was stopped by {} {}",
            self.by.join(" and "),
            ago_of(self.ago)
        )?;
        if let Some(reason) = &self.reason {
            write!(f, ",{reason}")?;
        }
        if let Some(shortened) = &self.shortened {
            shortened.fmt(f)?;
        }
        self.ends(f)?;
        if let Some(exit) = self.before {
            let name = &exit.container;
            write!(f, "; {name} had ended with exit code {}", code(exit))?;
        }
        Ok(())
    }
}

impl PodStop<'_> {
    fn ends(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_listed = self.shortened.is_some_and(|shortened| shortened.by_kubelet);
        let mut before = if is_listed { "; " } else { ": " };
        for end in self.ends.iter().take(MAX_CONTAINER_ENDS) {
            write!(f, "{before}{end}")?;
            before = "; ";
        }
        match self.ends.len().saturating_sub(MAX_CONTAINER_ENDS) {
            0 => Ok(()),
            n => write!(f, "; {n} more ended"),
        }
    }
}

impl Display for ShortenedGracePeriod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { given, own, .. } = self;
        write!(
            f,
            ", with a grace period of {} s instead of the pod's own {} s",
            given.as_secs(),
            own.as_secs()
        )?;
        if !self.by_kubelet {
            return Ok(());
        }
        let eviction = if *given <= HARD_EVICTION_GRACE_PERIOD {
            "an eviction"
        } else {
            "a soft eviction"
        };
        write!(f, ": {eviction}, a deletion with a shorter grace period")?;
        let other_reasons = if self.may_be_hook && *given >= MIN_GRACE_AFTER_HOOK {
            ", a node shutdown or a preStop hook that is no exec"
        } else {
            " or a node shutdown"
        };
        write!(f, "{other_reasons}, unknown which")
    }
}

impl Display for StoppedContainer<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(mut stop) = self.stop else {
            write!(f, "{} ended with its sandbox", self.container.name)?;
            return match self.exit {
                Some(exit) => write!(f, ", exit code {}", code(exit)),
                None => Ok(()),
            };
        };
        let is_killed = self.exit.is_none_or(|exit| exit.code == SIGKILL_EXIT_CODE);
        stop.killed_after = stop.killed_after.filter(|_| is_killed);
        stop.fmt(f)?;
        match self.exit.filter(|_| stop.killed_after.is_none()) {
            Some(exit) => write_exit_code(f, exit),
            None => Ok(()),
        }
    }
}

/// Writes the exit code, as a suffix.
fn write_exit_code(f: &mut Formatter<'_>, exit: &ExitRecord) -> fmt::Result {
    let code = code(exit);
    match exit.reason {
        _ if exit.is_out_of_memory() => {
            write!(f, ", killed for lack of memory (exit code {code})")
        }
        ExitReason::Unknown => write!(f, "; the runtime did not see how (exit code {code})"),
        _ => write!(f, " with exit code {code}"),
    }
}
