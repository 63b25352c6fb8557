//! Sentences on pods that were stopped while containers ran.

use std::fmt::{self, Display, Formatter};

use super::exit::{after, code, ended_before};
use super::kubelet::{failures, killed};
use super::request::memory_limit;
use super::{ago_of, duration, list};
use crate::diagnosis::containers::StoppedContainers;
use crate::diagnosis::kill_reason::KillReason;
use crate::diagnosis::reasons::{ClosedList, KeptPod, one_of, words};
use crate::diagnosis::stopped::{HurriedStop, PodStop, ShortenedGracePeriod, StoppedContainer};
use crate::episode_call::EpisodeCall;
use crate::episode_store::ExitRecord;
use crate::kubelet::probes::FailedProbe;
use criscope_cri::Method;
use criscope_cri::subject::ExitReason;

/// Number of containers whose end is told.
const MAX_CONTAINER_ENDS: usize = 3;
impl Display for PodStop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pod was stopped by {} {}",
            self.by.join(" and "),
            ago_of(self.ago)
        )?;
        if let Some(peer) = self.unknown_pod_of {
            let maker = peer.in_words();
            write!(
                f,
                ", because {maker} made it and the kubelet does not know it"
            )?;
        }
        match &self.reason {
            // A pod may also be deleted just after a probe has failed.
            Some(KillReason::Probe(_)) if self.is_kept => {}
            Some(KillReason::Probe(probe)) => {
                write!(
                    f,
                    ", after a deletion, or after {}, unknown which",
                    final_probe(probe)
                )?;
            }
            Some(reason) => write!(f, ", {reason}")?,
            None => {}
        }
        if let Some(shortened) = &self.shortened {
            shortened.fmt(f)?;
        }
        self.ends(f)?;
        if let Some((exit, before)) = self.before {
            f.write_str(&ended_before(exit, before))?;
        }
        if let Some(after) = self.after_start {
            let kept = if self.is_kept {
                "; the pod still exists"
            } else {
                ""
            };
            let deleted = if self.is_kept {
                ""
            } else {
                " or it was deleted just then"
            };
            let after = duration(after);
            return write!(
                f,
                "{kept}; the stop came {after} after the start: its activeDeadlineSeconds passed meanwhile{deleted}"
            );
        }
        if self.is_kept {
            let probe = match &self.reason {
                Some(KillReason::Probe(probe)) => Some(final_probe(probe)),
                _ => None,
            };
            let others = words(KeptPod::ALL).into_iter().map(str::to_owned);
            let reasons: Vec<_> = probe.into_iter().chain(others).collect();
            write!(f, "; the pod still exists: {}", one_of(&reasons))?;
        }
        Ok(())
    }
}

/// The probe after whose failure the kubelet may have ended the pod.
fn final_probe(probe: &FailedProbe) -> String {
    let failures = failures(probe);
    format!("a failing liveness or startup probe (exec, {failures}) with restartPolicy Never")
}

impl Display for StoppedContainers<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let were = if self.names.len() == 1 { "was" } else { "were" };
        let (containers, by) = (list(&self.names), self.by.join(" and "));
        let stopped = if self.removed { "removed" } else { "stopped" };
        let ago = ago_of(self.ago);
        write!(f, "{containers} {were} {stopped} by {by} {ago}")?;
        if let Some(reason) = &self.reason {
            write!(f, ", {reason}")?;
        }
        if let (Some(exit), [_]) = (self.exit, &self.names[..]) {
            write!(f, ": exit code {}{}", code(exit), after(exit))?;
        }
        f.write_str(&hurried_by(self.hurried))?;
        f.write_str("; not started again since")
    }
}

/// Writes who stopped or removed a container, and why the kubelet did.
pub(super) fn write_end_by_call(
    f: &mut Formatter<'_>,
    call: &EpisodeCall,
    reason: Option<KillReason>,
    exit: Option<&ExitRecord>,
) -> fmt::Result {
    let name = call.container_name().unwrap_or("a container");
    if let Some(reason) = reason {
        f.write_str(&killed(name, "was", &reason, ""))?;
        return match exit {
            Some(exit) => write!(f, ": exit code {}{}", code(exit), after(exit)),
            None => Ok(()),
        };
    }
    let stopped = match call.method {
        Method::RemoveContainer => "removed",
        _ => "stopped",
    };
    write!(f, "{name} was {stopped} by {}", call.peer.in_words())?;
    match exit {
        Some(exit) => write!(f, "{}, exit code {}", after(exit), code(exit)),
        None => Ok(()),
    }
}

impl PodStop<'_> {
    fn ends(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shortened = self.shortened.as_ref();
        let is_listed = shortened.is_some_and(|shortened| !shortened.reasons.is_empty());
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
            " with {} s of grace instead of {} s",
            given.as_secs(),
            own.as_secs()
        )?;
        match &self.reasons[..] {
            [] => Ok(()),
            reasons => write!(f, ": {}", one_of(&words(reasons))),
        }
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
        let is_killed = self.exit.is_none_or(ExitRecord::is_by_sigkill);
        stop.killed_after = stop.killed_after.filter(|_| is_killed);
        stop.fmt(f)?;
        if let Some(exit) = self.exit.filter(|_| stop.killed_after.is_none()) {
            write_exit_code(f, exit)?;
        }
        f.write_str(&hurried_by(self.hurried))
    }
}

/// Who shortened the grace period of a stop that another caller had begun, as a suffix.
pub(super) fn hurried_by(hurried: Option<HurriedStop<'_>>) -> String {
    let Some(HurriedStop { call, after }) = hurried else {
        return String::new();
    };
    let grace = call.facts.grace_period().unwrap_or_default().as_secs();
    format!(
        "; {} stopped {} again {} later with {grace} s of grace",
        call.peer.in_words(),
        call.container_name().unwrap_or("a container"),
        duration(after)
    )
}

/// Writes the exit code, as a suffix.
fn write_exit_code(f: &mut Formatter<'_>, exit: &ExitRecord) -> fmt::Result {
    let code = code(exit);
    match exit.reason {
        _ if exit.is_out_of_memory() => {
            let limit = memory_limit(exit.request.as_deref());
            write!(f, ", OOMKilled (exit code {code}{limit})")
        }
        ExitReason::Unknown => write!(f, "; the runtime did not see how (exit code {code})"),
        _ => write!(f, " with exit code {code}"),
    }
}
