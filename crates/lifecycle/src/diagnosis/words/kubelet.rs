//! Sentences on the kubelet's own work.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::failure::MAX_MESSAGE_BYTES;
use super::{duration, times};
use crate::diagnosis::kills::{KillLoop, KillReason};
use crate::diagnosis::kubelet::{ContainerHook, ContainerStop, HookKind, KubeletCause};
use crate::diagnosis::syncs::WorkBeforeCalls;
use crate::kubelet::images::MissingImage;
use crate::kubelet::probes::{FailedProbe, KillEvidence};
use crate::kubelet::pulls::PullInFlight;
use criscope_cri::error_chain;

/// A container that ends this long after its grace period was not ended by SIGKILL alone.
const LATE_KILL: Duration = Duration::from_secs(2);

/// Writes that an image is missing and not pulled. `since`: the time since the last call.
pub(super) fn write_missing_image(
    f: &mut Formatter<'_>,
    image: &MissingImage,
    since: Duration,
) -> fmt::Result {
    let name = &image.image;
    let over = duration(image.last.since(image.first));
    if let Some(error) = &image.error {
        let error = error_chain::shortened(error, MAX_MESSAGE_BYTES);
        write!(f, "image {name} cannot be looked up: {error}")?;
        return match image.times {
            1 => Ok(()),
            n => write!(f, " ({} in {over})", times(n as usize)),
        };
    }
    match image.times {
        // The pull is the next step of the kubelet, unless it has to wait.
        1 => write!(
            f,
            "image {name} is absent, and its pull has not begun for {}: imagePullPolicy Never, the kubelet's queue of pulls or its credential provider",
            duration(since)
        ),
        n => write!(
            f,
            "image {name} is absent and is not pulled (imagePullPolicy: Never?): the kubelet looked for it {} in {}, no other call for {}",
            times(n as usize),
            over,
            duration(since)
        ),
    }
}

/// Writes that a pod waits while an image is pulled for another pod. `since`: the time since the last call.
pub(super) fn write_wait_for_pull(
    f: &mut Formatter<'_>,
    image: Option<&str>,
    since: Duration,
    pull: &PullInFlight,
) -> fmt::Result {
    let since = duration(since);
    match image {
        Some(image) => write!(f, "kubelet: the pull of {image} has not begun for {since}")?,
        None => write!(f, "kubelet: no call for {since} since the sandbox was made")?,
    }
    write!(
        f,
        ": by default it pulls one image at a time, for {} now {} (pod {}/{})",
        duration(pull.took),
        pull.image,
        pull.pod.namespace,
        pull.pod.name
    )
}

impl Display for KubeletCause<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeFirstCall {
                waited,
                watched,
                then,
                up,
                work,
            } => {
                let (waited, then) = (duration(*waited), duration(*then));
                write!(f, "kubelet: {waited} before the first call")?;
                match (work, watched) {
                    (WorkBeforeCalls::Unknown, Some(watched)) => write!(
                        f,
                        ", only the last {} of it watched: volumes, admission, its queue, or earlier calls; ",
                        duration(*watched)
                    )?,
                    _ => write!(f, "{work}; ")?,
                }
                if *up {
                    write!(f, "then up after {then}")
                } else {
                    write!(f, "{then} since the first call")
                }
            }
            Self::BeforeStop { waited, fact, then } => {
                if let Some(waited) = waited {
                    let waited = duration(*waited);
                    write!(
                        f,
                        "kubelet: {waited} in syncTerminatingPod before the first call: "
                    )?;
                }
                match fact {
                    Some(fact) => fact.fmt(f)?,
                    None => f.write_str("preStop hooks that are no exec run there")?,
                }
                write!(f, "; then gone after {}", duration(*then))
            }
            Self::FailingSync(fails) => fails.fmt(f),
            Self::PullQueue { queue, total } => {
                let (waited, total) = (duration(queue.waited), duration(*total));
                write!(f, "kubelet: waited {waited} of {total} for ")?;
                match queue.pulls {
                    1 => write!(f, "the pull of {} (pod {})", queue.image, queue.pod)?,
                    n => write!(
                        f,
                        "{n} pulls, the longest of {} (pod {})",
                        queue.image, queue.pod
                    )?,
                }
                f.write_str(": it pulls one image at a time")
            }
            Self::HookInFlight { hook, failed_probe } => {
                if let Some(probe) = failed_probe {
                    let reason = KillReason::Probe(*probe);
                    write!(f, "the kubelet kills {}{reason}: ", hook.container)?;
                }
                write!(f, "{hook} has run for {}", duration(hook.took))
            }
            Self::PostStart { hook, total } => {
                write!(
                    f,
                    "{hook} took {} of {}",
                    duration(hook.took),
                    duration(*total)
                )?;
                match hook.result.filter(|result| !result.is_good()) {
                    Some(result) => write!(f, " and failed: {result}"),
                    None => Ok(()),
                }
            }
            Self::ContainerStopped { stop, total } => {
                write!(f, "stop: {stop}")?;
                write!(f, "; gone after {}", duration(*total))
            }
            Self::ContainerKilled {
                reason,
                stop,
                total,
            } => {
                match reason {
                    KillReason::Unknown => write!(
                        f,
                        "the kubelet stopped {} for {UNSEEN_KILL_REASONS}, unknown which",
                        stop.container
                    )?,
                    KillReason::Probe(weak) if weak.evidence == KillEvidence::Weak => {
                        write!(
                            f,
                            "the kubelet stopped {} for {}",
                            stop.container,
                            one_of(weak)
                        )?;
                    }
                    known => write!(f, "the kubelet killed {}{known}", stop.container)?,
                }
                write!(f, ": {stop}; started again, {} in all", duration(*total))
            }
            Self::KillLoop(series) => series.fmt(f),
        }
    }
}

impl Display for ContainerHook<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hook = match self.kind {
            HookKind::PostStart => "postStart",
            HookKind::PreStop => "preStop",
            HookKind::Unknown => "a hook (postStart or preStop)",
        };
        write!(f, "{hook} of {}", self.container)
    }
}

impl Display for ContainerStop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(hook) = &self.pre_stop {
            write!(f, "{} in preStop", duration(hook.took))?;
            match hook.result {
                None => f.write_str(", which had not ended")?,
                Some(result) if !result.is_good() => write!(f, " ({result})")?,
                Some(_) => {}
            }
            f.write_str(", then ")?;
        }
        let took = duration(self.took);
        write!(f, "{took} until {} ended", self.container)?;
        let Some(grace) = self.killed_after else {
            return Ok(());
        };
        let late = self.took.saturating_sub(grace);
        match grace.as_secs() {
            // The kill did not end the container at once, or the runtime was late.
            grace if late >= LATE_KILL => {
                let late = duration(late);
                write!(f, ", {late} after its grace period of {grace} s")
            }
            0 => f.write_str(", SIGKILL at once"),
            grace => write!(f, ", SIGKILL after its grace period of {grace} s"),
        }
    }
}

/// Reasons of a kill that no call shows.
const UNSEEN_KILL_REASONS: &str =
    "an HTTP, TCP or gRPC probe, a postStart hook by HTTP, a resize or another change of the pod";

/// The last failures of a probe.
fn failures(probe: &FailedProbe) -> String {
    match probe.in_a_row {
        1 => probe.result.to_string(),
        n => format!("{}, {} in a row", probe.result, times(n as usize)),
    }
}

/// The possible reasons of a kill, the failed probe among them.
fn one_of(probe: &FailedProbe) -> String {
    format!(
        "an exec probe ({}, the last {} before), {UNSEEN_KILL_REASONS}, unknown which",
        failures(probe),
        duration(probe.before)
    )
}

impl Display for KillReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(weak) if weak.evidence == KillEvidence::Weak => {
                write!(f, ": {}", one_of(weak))
            }
            Self::Probe(probe) => {
                write!(f, " after a failing liveness or startup probe (exec, ")?;
                write!(f, "{})", failures(probe))
            }
            Self::PostStart(result) => write!(f, " after its postStart hook failed ({result})"),
            Self::ImageChanged => f.write_str(" for its new image"),
            Self::Unknown => write!(
                f,
                ": no exec probe explains it; {UNSEEN_KILL_REASONS}, unknown which"
            ),
        }
    }
}

impl Display for KillLoop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keeps = if self.is_over { "kept" } else { "keeps" };
        let (kills, window) = (times(self.kills), duration(self.window));
        write!(
            f,
            "the kubelet {keeps} killing {}: {kills} in {window}{}",
            self.container, self.reason
        )
    }
}
