//! Sentences on the kubelet's own work.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::crash::settled;
use super::failure::MAX_MESSAGE_BYTES;
use super::stopped::hurried_by;
use super::{ago_of, duration, times};
use crate::diagnosis::kill_reason::{KillReason, UnseenKills};
use crate::diagnosis::kills::KillLoop;
use crate::diagnosis::kubelet::{ContainerHook, ContainerStop, HookKind, KubeletCause};
use crate::diagnosis::reasons::{ClosedList, StepBeforeCreate, StepBeforePull, one_of, words};
use crate::diagnosis::syncs::WorkBeforeCalls;
use crate::diagnosis::waits;
use crate::kubelet::execs::ExecResult;
use crate::kubelet::images::MissingImage;
use crate::kubelet::probes::FailedProbe;
use crate::kubelet::pulls::PullInFlight;
use criscope_cri::error_chain;
use criscope_cri::subject::PodIdentity;

/// A container that ends this long after its grace period was not ended by SIGKILL alone.
const LATE_KILL: Duration = Duration::from_secs(2);

/// Writes that an image is missing and not pulled. `since`: the time since the last call. `reasons`: why it may not be pulled.
pub(super) fn write_missing_image(
    f: &mut Formatter<'_>,
    image: &MissingImage,
    since: Duration,
    reasons: &[StepBeforePull],
) -> fmt::Result {
    let (name, why) = (&image.image, one_of(&words(reasons)));
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
            "image {name} is not on this node, and its pull has not begun for {}; held up by {why}",
            duration(since)
        ),
        n => write!(
            f,
            "image {name} is not on this node; the kubelet looked for it {} in {over} and does not pull it: {why}",
            times(n as usize)
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
    let PodIdentity {
        namespace, name, ..
    } = &*pull.pod;
    let (other, took) = (&pull.image, duration(pull.took));
    match image {
        Some(image) => write!(
            f,
            "the pull of {image} has waited {since} for its turn: by default the kubelet pulls one image at a time, {other} for {took} so far (pod {namespace}/{name})"
        ),
        None => write!(
            f,
            "the kubelet has made no call for {since} since the sandbox was made; held up by {}",
            one_of(
                &[
                    vec![format!(
                        "the pull of {other} (pod {namespace}/{name}, {took} so far)"
                    )],
                    words(&waits::steps_after_image())
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                ]
                .concat()
            )
        ),
    }
}

/// Writes that the kubelet found the image of a container and did not create the container.
pub(super) fn write_not_created(
    f: &mut Formatter<'_>,
    image: &str,
    since: Duration,
    steps: &[StepBeforeCreate],
) -> fmt::Result {
    let since = duration(since);
    write!(
        f,
        "the kubelet found image {image} and has made no call for {since}; held up by {}",
        one_of(&words(steps))
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
                write!(f, "the kubelet took {waited} before its first call")?;
                match (work, watched) {
                    (WorkBeforeCalls::Unknown(steps), Some(watched)) => {
                        let watched = duration(*watched);
                        let reasons = [vec!["earlier calls"], steps.words()].concat();
                        let reasons = one_of(&reasons);
                        write!(f, ", only the last {watched} of it watched: {reasons}; ")?;
                    }
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
                        "the kubelet was in syncTerminatingPod for {waited} before its first call: "
                    )?;
                }
                match fact {
                    Some(fact) => fact.fmt(f)?,
                    None => f.write_str("preStop hooks by HTTP or sleep run there")?,
                }
                write!(f, "; then gone after {}", duration(*then))
            }
            Self::FailingSync(fails) => fails.fmt(f),
            Self::PullQueue { queue, total } => {
                let (waited, total) = (duration(queue.waited), duration(*total));
                write!(
                    f,
                    "the kubelet pulls one image at a time: {waited} of {total} behind "
                )?;
                match queue.pulls {
                    1 => write!(f, "the pull of {} (pod {})", queue.image, queue.pod),
                    n => write!(
                        f,
                        "{n} pulls, the longest of {} (pod {})",
                        queue.image, queue.pod
                    ),
                }
            }
            Self::HookInFlight { hook, failed_probe } => {
                if let Some(probe) = failed_probe {
                    let reason = KillReason::Probe(*probe);
                    write!(f, "{}: ", killed(hook.container, "is", &reason, ""))?;
                }
                write!(f, "{hook} has run for {} so far", duration(hook.took))
            }
            Self::PostStart { hook, total } => {
                write!(
                    f,
                    "{hook} took {} of {}",
                    duration(hook.took),
                    duration(*total)
                )?;
                match hook.result {
                    Some(result) if result.has_failed() => write!(f, " and failed: {result}"),
                    Some(ExecResult::Cancelled) => {
                        f.write_str(", until the kubelet cancelled the hook")
                    }
                    _ => Ok(()),
                }
            }
            Self::ContainerStopped { stop, total } => {
                write!(f, "gone after {}: {stop}", duration(*total))
            }
            Self::ContainerKilled {
                reason,
                ago,
                stop,
                hurried,
                total,
            } => {
                let ago = format!(" {}", ago_of(*ago));
                let killed = killed(stop.container, "was", reason, &ago);
                let (total, hurried) = (duration(*total), hurried_by(*hurried));
                write!(
                    f,
                    "{killed}: {stop}{hurried}; started again after {total} in all"
                )
            }
            Self::KillLoop(series) => series.fmt(f),
        }
    }
}

impl Display for ContainerHook<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hook = match self.kind {
            HookKind::PostStart => "the postStart hook",
            HookKind::PreStop => "the preStop hook",
            HookKind::Unknown => "a hook (postStart or preStop)",
        };
        write!(f, "{hook} of {}", self.container)
    }
}

impl Display for ContainerStop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(hook) = &self.pre_stop {
            write!(f, "{} in the preStop hook", duration(hook.took))?;
            match hook.result {
                None => f.write_str(" (unfinished)")?,
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

/// The kill of a container, and its reason: `app was killed by its liveness or startup probe (exec, exit code 1)`. `verb`: `is` or
/// `was`. `ago`: when, as a suffix.
pub(super) fn killed(container: &str, verb: &str, reason: &KillReason, ago: &str) -> String {
    match reason {
        KillReason::Probe(probe) => {
            let failures = failures(probe);
            format!(
                "{container} {verb} killed by its liveness or startup probe{ago} (exec, {failures})"
            )
        }
        reason => format!("{container} {verb} killed by the kubelet{ago} {reason}"),
    }
}

/// The last failures of a probe.
pub(super) fn failures(probe: &FailedProbe) -> String {
    match probe.in_a_row {
        1 => probe.result.to_string(),
        n => format!("{}, {} in a row", probe.result, times(n as usize)),
    }
}

impl Display for KillReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(probe) => {
                let failures = failures(probe);
                write!(
                    f,
                    "after a failing liveness or startup probe (exec, {failures})"
                )
            }
            Self::PostStart(result) => write!(f, "after its postStart hook failed ({result})"),
            Self::ImageChanged => f.write_str("for its new image"),
            Self::Resized => f.write_str("for a resize that needs a restart"),
            Self::RestartRule(code) => write!(
                f,
                "because another container ended with exit code {code}, on which the pod restarts all containers"
            ),
            Self::OneOf { probe, unseen } => write_possible_reasons(f, probe.as_ref(), unseen),
        }
    }
}

/// Writes the possible reasons of a kill, a failed exec probe among them.
fn write_possible_reasons(
    f: &mut Formatter<'_>,
    probe: Option<&FailedProbe>,
    unseen: &UnseenKills,
) -> fmt::Result {
    let probe = probe.map(|probe| {
        format!(
            "a failing exec probe ({}, the last {} before)",
            failures(probe),
            duration(probe.before)
        )
    });
    let unseen = unseen
        .iter()
        .flatten()
        .map(|reason| reason.words().to_owned());
    let reasons: Vec<_> = probe.into_iter().chain(unseen).collect();
    write!(f, "after {}", one_of(&reasons))
}

impl Display for KillLoop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = if self.is_over { "was" } else { "is" };
        let (kills, window) = (times(self.kills), duration(self.window));
        let name = self.container;
        match &self.reason {
            KillReason::Probe(probe) => {
                let failures = failures(probe);
                write!(
                    f,
                    "{name} {verb} killed by its liveness or startup probe: {kills} in {window} (exec, {failures})"
                )?;
            }
            reason => write!(
                f,
                "{name} {verb} killed by the kubelet: {kills} in {window}, {reason}"
            )?,
        }
        f.write_str(&settled(self.settled_for))
    }
}
