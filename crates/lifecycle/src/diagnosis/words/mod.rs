//! Sentences of the diagnosis, as `Display` of a [`Diagnosis`](super::Diagnosis): the object first, then the cause, then the evidence,
//! then remarks.

mod exit;
mod failure;
mod kubelet;
mod node;
mod remarks;
mod slow;
mod stopped;
mod syncs;

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use self::exit::{
    after, ago_of, code, ended, ended_by, hint, oom_kills, sandbox_death, stopped_by,
};
use super::before::{Predecessor, SandboxReplacement};
use super::cause::{CallInFlight, Cause, EpisodeOutcome, NotSlow, WorkProgress};
use super::crash::CrashLoop;
use super::work::LongestWorker;
use crate::episode_call::EpisodeCall;
use crate::episode_store::AwaitedContainers;
use crate::node::restarted;
use crate::process_scanner::WorkKind;
use crate::usual::{ComparedDuration, MANY_STARTS};
use criscope_cri::call::{Client, Peer};
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::{UnixMicros, millis};
use criscope_cri::units::{self, since};

const NO_PROCESS_SEEN: &str = "no process was seen at work for it";

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
            Self::NoFurtherCall { after, since } => write!(
                f,
                "kubelet: no call for {} since {} ended: it waits for something outside the CRI",
                duration(*since),
                subject(after)
            ),
            Self::ProbeFails(probe) => write!(
                f,
                "an exec probe of {} fails: {}, {} in a row (readiness, startup or another: the CRI does not say)",
                probe.container,
                probe.last_result,
                times(probe.failed_in_a_row as usize)
            ),
            Self::ImageMissing { image, since } => kubelet::write_missing_image(f, image, *since),
            Self::WaitsForPull { image, since, pull } => {
                kubelet::write_wait_for_pull(f, image.as_deref(), *since, pull)
            }
            Self::WaitsForNode { fact, waits } => write!(f, "{fact}; {waits}"),
            Self::BackendWasAway(fact) => fact.fmt(f),
            Self::NodeInGap { fact, took, total } => {
                let (took, total) = (duration(*took), duration(*total));
                write!(f, "{fact}; {took} of {total} passed between CRI calls")
            }
            Self::NodeInCall { fact, call, total } => {
                let (took, total) = (duration(call.took()), duration(*total));
                write!(f, "{fact}; {took} of {total} in {}", subject(call))
            }
            Self::AwaitsContainer { awaited, since } => {
                let AwaitedContainers { last, missing, .. } = awaited;
                let init = if awaited.is_init { "init " } else { "" };
                let since = duration(*since);
                write!(f, "{init}container {last} was started {since} ago; ")?;
                match &missing[..] {
                    [] => f.write_str("in other pods it was an init container: others may follow"),
                    some => write!(f, "not started yet: {}", some.join(", ")),
                }
            }
            Self::EndedWithNode { containers, booted } => {
                let (containers, restarted) = (list(containers), restarted(*booted));
                write!(
                    f,
                    "{containers} ended: {restarted}, and nothing of the pod since"
                )
            }
            Self::NoContainerStarted { after } => write!(
                f,
                "no container was started: the pod was stopped, or given up, after {}",
                duration(*after)
            ),
            Self::CrashLoop(crash_loop) => crash_loop.fmt(f),
            Self::PodStopped(stop) => stop.fmt(f),
            Self::Kubelet(cause) => cause.fmt(f),
            Self::ContainerExited(exit) => {
                write!(f, "container {} {}", exit.container, ended(exit))
            }
            Self::StoppedByOther { exit, peer, ago } => write!(
                f,
                "container {} {} {}, and was not started again",
                exit.container,
                stopped_by(exit, peer),
                ago_of(*ago)
            ),
            Self::StartedAgain(Predecessor::ContainerRun(run)) => {
                let ended = match run.stopped_by {
                    Some(peer) => stopped_by(run.exit, peer),
                    None => ended(run.exit),
                };
                write!(f, "container {} {ended}", run.exit.container)?;
                match run.ago.as_secs() {
                    0 => Ok(()),
                    _ => write!(f, " ({})", since(run.ago)),
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
                    f.write_str("; it was stopped since")
                } else {
                    Ok(())
                }
            }
            Self::SlowPhase(slow) => slow.fmt(f),
            Self::UnusualCall { call, usual } => {
                let took = duration(call.took());
                write!(f, "{} took {took}, {usual}", subject(call))
            }
            Self::NotSlow(quick) => quick.fmt(f),
        }
    }
}

fn duration(time: Duration) -> String {
    units::duration(millis(time))
}

impl Display for CallInFlight<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let took = duration(self.call.took());
        if let Some(reason) = &self.kill_reason {
            write!(f, "the kubelet kills {}{reason}: ", self.call.target())?;
        }
        write!(f, "{} has taken {took}", subject(self.call))?;
        // The grace period of a stop, while it lasts.
        let grace = self.call.facts.grace_period();
        let grace = grace.filter(|grace| self.call.took() < *grace);
        if let Some(grace) = grace.map(|grace| grace.as_secs()) {
            write!(
                f,
                " of the grace period of {grace} s, after which it is killed"
            )?;
        } else if let Some(deadline) = self.call.deadline {
            write!(f, " of its {}", duration(deadline))?;
        }
        match &self.work {
            // The built-in runtime's step of the grace period says no more.
            WorkProgress::Current(worker) if worker.own && grace.is_some() => {}
            WorkProgress::Current(worker) => write!(f, "; now in {worker}")?,
            // The runtime waits for the container to end.
            _ if grace.is_some() => {}
            WorkProgress::SoFar(worker) => {
                write!(f, "; so far {} in {worker}", duration(worker.took))?;
            }
            WorkProgress::Unseen { looked: true } => write!(f, "; {NO_PROCESS_SEEN}")?,
            WorkProgress::Unseen { looked: false } => {}
        }
        if let Some(usual) = &self.usual {
            write!(f, "; {usual}")?;
        }
        match self.failures {
            0 => Ok(()),
            1 => write!(f, "; 1 call failed before"),
            n => write!(f, "; {n} calls failed before"),
        }
    }
}

impl Display for ComparedDuration {
    /// `usually 3.00 s here`, `while 20 pods start, 600 ms alone`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let usual = duration(self.typical.median);
        if self.is_unusual && self.starts >= MANY_STARTS {
            write!(f, "while {} pods start, {usual} alone", self.starts)
        } else {
            write!(f, "usually {usual} here")
        }
    }
}

impl Display for NotSlow<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outcome())?;
        match self.end {
            EpisodeOutcome::ContainersUp(_)
            | EpisodeOutcome::ContainerUp(_)
            | EpisodeOutcome::PodStopped
            | EpisodeOutcome::Incomplete => f.write_str(", nothing slow"),
            _ => Ok(()),
        }
    }
}

impl NotSlow<'_> {
    /// The outcome, and after what time.
    fn outcome(&self) -> String {
        let took = duration(self.took);
        match &self.end {
            EpisodeOutcome::ContainersUp(names) if names.is_empty() => {
                format!("started after {took}")
            }
            EpisodeOutcome::ContainersUp(names) => format!("{} up after {took}", list(names)),
            EpisodeOutcome::OneContainerUp { container, since } => format!(
                "container {container} has run for {}, its start took {took}; \
                 the CRI does not say whether it is an init container",
                duration(*since)
            ),
            EpisodeOutcome::ContainerDone(exit) => {
                let name = &exit.container;
                format!("container {name} {}; the start took {took}", ended(exit))
            }
            EpisodeOutcome::ContainerUp(Some(name)) => {
                format!("container {name} up after {took}")
            }
            EpisodeOutcome::ContainerUp(None) => format!("the container up after {took}"),
            EpisodeOutcome::ImagePulled => format!("image pulled in {took}"),
            EpisodeOutcome::ContainerStopped(name) => {
                format!("container {name} stopped after {took}; the pod stays")
            }
            EpisodeOutcome::PodStopped => format!("gone after {took}"),
            EpisodeOutcome::Incomplete => format!("begun, {took} so far"),
        }
    }
}

impl Display for CrashLoop<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keeps = if self.is_over { "kept" } else { "keeps" };
        let code = code(self.last);
        let ending = match self.last.reason {
            _ if self.last.is_out_of_memory() => "being killed for lack of memory",
            ExitReason::Evicted => "being evicted",
            _ => "ending",
        };
        let name = self.container;
        let after = after(self.last);
        write!(
            f,
            "container {name} {keeps} {ending}: exit code {code}{after}"
        )?;
        // Starts that precede criscope are counted by the restart count.
        match self.starts {
            0 | 1 => write!(f, ", {} restarts", self.last.attempt)?,
            n => write!(f, ", {n} starts in {}", duration(self.window))?,
        }
        f.write_str(&ended_by(self.last))?;
        f.write_str(hint(self.last))
    }
}

impl Display for LongestWorker<'_> {
    /// `the CNI plugin calico (running iptables)`, `the OCI runtime runc create`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match (self.kind, self.activity) {
            (WorkKind::Cni, None) => write!(f, "the CNI plugin {name}"),
            (WorkKind::Cni, Some(activity)) => {
                write!(f, "the CNI plugin {name} (running {activity})")
            }
            (WorkKind::Oci, None) => write!(f, "the OCI runtime {name}"),
            (WorkKind::Oci, Some(activity)) => write!(f, "the OCI runtime {name} {activity}"),
            (WorkKind::Injected, _) => write!(f, "an injected fault ({name})"),
            (WorkKind::Blocked, held) => write!(f, "{name}, {}", held.unwrap_or("blocked")),
            (WorkKind::Layers, words) => {
                let what = match name {
                    "unpack" => "the unpacking of its layers",
                    _ => "the fetch of its layers",
                };
                write!(f, "{what} ({})", words.unwrap_or("number unknown"))
            }
            (WorkKind::Helper, _) => write!(f, "{name}, started by the runtime"),
            (WorkKind::Runtime, _) if self.own => f.write_str(name),
            (WorkKind::Runtime, _) => write!(f, "the runtime's {name}"),
        }
    }
}

impl Display for SandboxReplacement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let attempt = self.attempt;
        match self.times {
            n @ 2.. => {
                let keeps = if self.is_over { "was" } else { "keeps being" };
                let (n, window) = (times(n), duration(self.window));
                write!(f, "the sandbox {keeps} replaced: {n} in {window}")?;
                match self.death {
                    Some(death) => write!(f, "; the last one died: {}", sandbox_death(death)),
                    None => Ok(()),
                }
            }
            _ if let Some(peer) = self.stopped_by => write!(
                f,
                "the sandbox was stopped by {} and replaced (attempt {attempt})",
                peer.in_words()
            ),
            _ => {
                write!(f, "the sandbox was replaced (attempt {attempt}): ")?;
                if let Some(restart) = self.downtime.filter(|fact| fact.booted().is_some()) {
                    return f.write_str(&restart.sentence(UnixMicros::EPOCH));
                }
                f.write_str("the one before ")?;
                match (self.death, self.downtime) {
                    (Some(death), _) => write!(f, "died: {}", sandbox_death(death)),
                    // The downtime has ended, so its sentence does not depend on the time.
                    (None, Some(fact)) => {
                        write!(
                            f,
                            "was not usable after {}",
                            fact.sentence(UnixMicros::EPOCH)
                        )
                    }
                    (None, None) => f.write_str("was not usable"),
                }
            }
        }
    }
}

/// `container a`, `containers a, b`, `4 containers`.
fn list(containers: &[&str]) -> String {
    match containers {
        [name] => format!("container {name}"),
        [_, _] | [_, _, _] => format!("containers {}", containers.join(", ")),
        many => format!("{} containers", many.len()),
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
