//! Sentences of the diagnosis, as `Display` of a [`Diagnosis`](super::Diagnosis): the object first, then the cause, then the evidence,
//! then remarks.

mod broken_off;
mod checkpoints;
mod crash;
mod exit;
pub(super) mod failure;
mod in_flight;
mod interventions;
mod kubelet;
mod next_step;
mod node;
mod remarks;
mod replacement;
mod request;
mod slow;
mod start;
mod stopped;
mod syncs;

use std::fmt::{self, Display, Formatter};

use self::exit::{ago_of, ended, oom_kills, sandbox_death};
use super::before::Predecessor;
use super::cause::{Cause, EpisodeOutcome, NotSlow};
use super::reasons::{one_of, words};
use super::work::LongestWorker;
use crate::containerd::pulls::AWAITED_MANIFEST;
use crate::episode_call::EpisodeCall;
use crate::kubelet::hanging_probe::HangingProbe;
use crate::node::restarted;
use crate::process_scanner::WorkKind;
use crate::usual::{ComparedDuration, MANY_STARTS};
use criscope_cri::call::{Client, Peer};
use criscope_cri::units::spoken as duration;

impl Display for Cause<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::CallInFlight(call) => call.fmt(f),
            Self::CallFails(failure) => failure.fmt(f),
            Self::DeletedWithoutSandbox { ago, failure } => {
                let ago = ago_of(*ago);
                write!(
                    f,
                    "the pod was deleted {ago}, before it had a sandbox: {failure}"
                )
            }
            Self::Recovered(failure) => failure.fmt(f),
            Self::NoFurtherCall {
                after,
                since,
                steps,
            } => write!(
                f,
                "the kubelet has made no call for {} since {} ended; held up by {}",
                duration(*since),
                subject(after),
                one_of(&words(steps))
            ),
            Self::ProbeHangs(HangingProbe {
                container,
                timeout,
                took,
                ended_ago: Some(ago),
            }) => write!(
                f,
                "an exec probe of {container} (timeout {}) hung in the runtime for {} (until {})",
                duration(*timeout),
                duration(*took),
                ago_of(*ago)
            ),
            Self::ProbeHangs(probe) => write!(
                f,
                "an exec probe of {} (timeout {}) has hung in the runtime for {}; {} is not probed meanwhile",
                probe.container,
                duration(probe.timeout),
                duration(probe.took),
                probe.container
            ),
            Self::ProbeFails(probe) => write!(
                f,
                "an exec probe of {} fails: {}, {} in a row (readiness, startup or another: the CRI does not say which)",
                probe.container,
                probe.last_result,
                times(probe.failed_in_a_row as usize)
            ),
            Self::ContainerNotCreated {
                image,
                since,
                steps,
            } => kubelet::write_not_created(f, image, *since, steps),
            Self::ImageMissing {
                image,
                since,
                reasons,
            } => kubelet::write_missing_image(f, image, *since, reasons),
            Self::WaitsForPull { image, since, pull } => {
                kubelet::write_wait_for_pull(f, image.as_deref(), *since, pull)
            }
            Self::WaitsForNode { fact, waits } => write!(f, "{fact}; {waits}"),
            Self::BackendWasAway(fact) => fact.fmt(f),
            Self::BrokenOff(call) => call.fmt(f),
            Self::NodeInGap { fact, took, total } => {
                let (took, total) = (duration(*took), duration(*total));
                write!(f, "{fact}; {took} of {total} went by between CRI calls")
            }
            Self::NodeInCall { fact, call, total } => {
                let (took, total) = (duration(call.took()), duration(*total));
                write!(f, "{fact}; {took} of {total} in {}", subject(call))
            }
            Self::AwaitsContainer {
                awaited,
                since,
                ended,
            } => start::write_awaited(f, awaited, *since, *ended),
            Self::EndedWithNode { containers, booted } => {
                let (containers, restarted) = (list(containers), restarted(*booted));
                write!(
                    f,
                    "{restarted}: {containers} ended with it, and no call came for the pod since"
                )
            }
            Self::NoContainerStarted {
                last,
                after,
                stopped_by,
                steps,
            } => {
                let after = duration(*after);
                match stopped_by {
                    Some(peer) => {
                        let by = peer.in_words();
                        write!(
                            f,
                            "no container was started, and {by} stopped the pod after {after}"
                        )?;
                    }
                    None => write!(f, "no container was started in {after}")?,
                }
                match &steps[..] {
                    [] => Ok(()),
                    steps => write!(
                        f,
                        ": after {} the kubelet was held up by {}",
                        subject(last),
                        one_of(&words(steps))
                    ),
                }
            }
            Self::InitRetried(retries) => retries.fmt(f),
            Self::ProbeLate(probe) => probe.fmt(f),
            Self::NeverStarted { missing, last } => start::write_never_started(f, missing, last),
            Self::CrashLoop(crash_loop) => crash_loop.fmt(f),
            Self::PodStopped(stop) => stop.fmt(f),
            Self::Kubelet(cause) => cause.fmt(f),
            Self::ContainerExited(exit) => {
                write!(f, "{} {}", exit.container, ended(exit))
            }
            Self::ContainersStopped(stopped) => stopped.fmt(f),
            Self::OtherExits { exit, times: n } => {
                write!(f, "{} {}", exit.container, ended(exit))?;
                match n {
                    1 => Ok(()),
                    n => write!(f, ", {}", times(*n)),
                }
            }
            Self::NodeTrouble(fact) => fact.fmt(f),
            Self::SlowCall(call) => {
                write!(f, "{} took {}", subject(call), duration(call.took()))
            }
            Self::StartedAgain(Predecessor::ContainerRun(run)) => {
                match (run.stopped_by, run.exit) {
                    (Some(call), exit) => {
                        stopped::write_end_by_call(f, call, run.kill_reason, exit)?;
                    }
                    (None, Some(exit)) => {
                        write!(f, "{} {}", run.container, ended(exit))?;
                    }
                    (None, None) => write!(f, "{} ended", run.container)?,
                }
                match run.ago.as_secs() {
                    0 => Ok(()),
                    _ => write!(f, " ({})", ago_of(run.ago)),
                }
            }
            Self::StartedAgain(Predecessor::Sandbox(replaced)) => replaced.fmt(f),
            Self::OomKills { kills, ago } => f.write_str(&oom_kills(kills, &ago_of(*ago))),
            Self::SandboxDied {
                death,
                ago,
                is_stopped,
            } => {
                write!(
                    f,
                    "the sandbox died {}: {}",
                    ago_of(*ago),
                    sandbox_death(*death)
                )?;
                if *is_stopped {
                    f.write_str("; cleaned up since")
                } else {
                    Ok(())
                }
            }
            Self::SlowPhase(slow) => slow.fmt(f),
            Self::UnusualCall { call, usual } => {
                let took = duration(call.took());
                write!(f, "{} took {took} ({usual})", subject(call))
            }
            Self::NotSlow(quick) => quick.fmt(f),
        }
    }
}

impl Display for ComparedDuration {
    /// `usually 3 s here`, `20 pods started at once; alone it takes 0.6 s here`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let usual = duration(self.typical.median);
        if self.is_unusual && self.starts >= MANY_STARTS {
            let starts = self.starts;
            write!(
                f,
                "{starts} pods started at once; alone it takes {usual} here"
            )
        } else {
            write!(f, "usually {usual} here")
        }
    }
}

impl Display for NotSlow<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outcome())?;
        match &self.end {
            EpisodeOutcome::Containers { up, ended } if up.is_empty() || !ended.is_empty() => {
                Ok(())
            }
            EpisodeOutcome::Containers { .. } | EpisodeOutcome::PodStopped => {
                f.write_str(", nothing slow")
            }
            _ => Ok(()),
        }
    }
}

impl NotSlow<'_> {
    /// The outcome, and after what time.
    fn outcome(&self) -> String {
        let took = duration(self.took);
        match &self.end {
            EpisodeOutcome::Containers { up, ended: exits } => {
                let mut parts = Vec::new();
                if !up.is_empty() {
                    parts.push(format!("{} up after {took}", list(up)));
                }
                parts.extend(start::ends(exits));
                if up.is_empty() {
                    parts.push(format!("the start took {took}"));
                }
                parts.join("; ")
            }
            EpisodeOutcome::OneContainerUp { container, since } => format!(
                "{container} has run for {}, its start took {took}; the CRI does not say whether {container} is an init container",
                duration(*since)
            ),
            EpisodeOutcome::ImagePulled => format!("image pulled in {took}"),
            EpisodeOutcome::ContainerStopped(name) => {
                format!("{name} stopped after {took}; the pod stays")
            }
            EpisodeOutcome::PodStopped => format!("gone after {took}"),
            EpisodeOutcome::Incomplete => "the start is in progress".to_owned(),
        }
    }
}

impl Display for LongestWorker<'_> {
    /// `the CNI plugin calico (running iptables)`, `runc create`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match (self.kind, self.activity) {
            (WorkKind::Cni, None) => write!(f, "the CNI plugin {name}"),
            (WorkKind::Cni, Some(activity)) => {
                write!(f, "the CNI plugin {name} (running {activity})")
            }
            (WorkKind::Oci, None) => write!(f, "the OCI runtime {name}"),
            (WorkKind::Oci, Some(activity)) => write!(f, "{name} {activity}"),
            (WorkKind::Injected, _) => write!(f, "an injected {name}"),
            (WorkKind::Blocked, held) => write!(f, "{name}, {}", held.unwrap_or("blocked")),
            (WorkKind::Layers, host) if name == AWAITED_MANIFEST => {
                let host = host.unwrap_or("its registry");
                write!(f, "the wait for its manifest (from {host} or a mirror)")
            }
            (WorkKind::Layers, words) => {
                let what = match name {
                    "unpack" => "the unpacking of its layers",
                    _ => "the fetch of its layers",
                };
                write!(f, "{what} ({})", words.unwrap_or("number unknown"))
            }
            (WorkKind::Helper, _) => write!(f, "{name}, started by the runtime"),
            (WorkKind::Runtime, Some(transfer)) if self.own => write!(f, "{name} ({transfer})"),
            (WorkKind::Runtime, None) if self.own => f.write_str(name),
            (WorkKind::Runtime, _) => write!(f, "the runtime's {name}"),
        }
    }
}

/// `a`, `a and b`, `a, b and c`, `4 containers`.
fn list(containers: &[&str]) -> String {
    match containers {
        [_, _, _, _, ..] => format!("{} containers", containers.len()),
        few => all_of(few),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn all_of(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// `once`, `twice`, `3 times`.
fn times(n: usize) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// A call and its target: `CreateContainer of app`.
fn subject(call: &EpisodeCall) -> String {
    match call.target() {
        "" => call.method.name().to_owned(),
        target => format!("{} of {target}", call.method.name()),
    }
}

/// The caller of a stop or removal, if it is not the kubelet, as a suffix.
fn stopped_by(call: &EpisodeCall) -> String {
    if call.method.takes_away() && !call.peer.is_kubelet() {
        format!(" by {}", call.peer.in_words())
    } else {
        String::new()
    }
}

/// The caller, which set the deadline or cancelled.
fn caller(call: &EpisodeCall) -> &str {
    match &*call.peer {
        Peer {
            client: Client::Other,
            comm: None,
            ..
        } => "the caller",
        peer => peer.in_words(),
    }
}
