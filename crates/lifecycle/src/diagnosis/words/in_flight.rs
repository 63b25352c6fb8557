//! Sentences on calls in flight: what the pod waits for, how long so far, and who is at work.

use std::fmt::{self, Display, Formatter};

use super::kubelet::killed;
use super::stopped::hurried_by;
use super::{caller, duration, times};
use crate::containerd::pulls::AWAITED_MANIFEST;
use crate::diagnosis::cause::{CallInFlight, WorkProgress};
use crate::diagnosis::work::LongestWorker;
use crate::episode_call::EpisodeCall;
use crate::process_scanner::WorkKind;
use criscope_cri::Method;

impl Display for CallInFlight<'_> {
    /// `waiting 39 s for the network: the CNI plugin slow-policy has not answered (limit 1 min; failed once before)`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(lost) = &self.broken_off {
            write!(f, "{lost}; ")?;
        }
        if let Some(reason) = &self.kill_reason {
            write!(f, "{}: ", killed(self.call.target(), "is", reason, ""))?;
        }
        let took = duration(self.call.took());
        // The runtime waits for the container to end, and its step of the grace period says no more.
        let grace = self.call.facts.grace_period();
        let grace = grace.filter(|grace| self.call.took() < *grace);
        match &self.work {
            WorkProgress::Current(worker) if self.is_network(worker) => {
                write!(
                    f,
                    "waiting {took} for the network: {worker} has not answered"
                )?;
            }
            WorkProgress::Current(worker) if grace.is_none() || !worker.own => {
                write!(f, "waiting {took} for {}", awaited(self.call))?;
                write_work(f, worker)?;
            }
            WorkProgress::SoFar(worker) if grace.is_none() => {
                let so_far = duration(worker.took);
                write!(
                    f,
                    "waiting {took} for {}; {so_far} of it in {worker}",
                    awaited(self.call)
                )?;
            }
            _ => write!(f, "waiting {took} for {}", awaited(self.call))?,
        }
        let mut notes = Vec::new();
        if self.call.method.takes_away() && !self.call.peer.is_kubelet() {
            notes.push(format!("asked by {}", caller(self.call)));
        }
        match (grace, self.call.deadline) {
            (Some(grace), _) => notes.push(format!(
                "SIGKILL after its grace period of {} s",
                grace.as_secs()
            )),
            (None, Some(deadline)) => notes.push(format!("limit {}", duration(deadline))),
            (None, None) => {}
        }
        notes.extend(self.usual.as_ref().map(ToString::to_string));
        if self.failures > 0 {
            notes.push(format!("failed {} before", times(self.failures)));
        }
        match &notes[..] {
            [] => {}
            // The work may end with brackets of its own.
            notes
                if self
                    .work
                    .worker()
                    .is_some_and(|worker| worker.activity.is_some()) =>
            {
                write!(f, "; {}", notes.join("; "))?;
            }
            notes => write!(f, " ({})", notes.join("; "))?,
        }
        f.write_str(&hurried_by(self.hurried))
    }
}

impl CallInFlight<'_> {
    /// Returns whether a CNI plugin at work accounts for most of the call so far.
    fn is_network(&self, worker: &LongestWorker<'_>) -> bool {
        let is_start = self.call.method.makes_sandbox();
        is_start && worker.kind == WorkKind::Cni && 5 * worker.took >= 4 * self.call.took()
    }
}

/// What a call will bring: `the pull of web:1`, `app to start`.
pub(super) fn awaited(call: &EpisodeCall) -> String {
    let target = call.target();
    match call.method {
        Method::PullImage => format!("the pull of {target}"),
        Method::RunPodSandbox => "the sandbox".to_owned(),
        Method::RestorePod => "the pod to be restored".to_owned(),
        Method::CreateContainer => format!("{target} to be created"),
        Method::StartContainer => format!("{target} to start"),
        Method::StopContainer => format!("{target} to stop"),
        Method::RemoveContainer => format!("{target} to be removed"),
        Method::StopPodSandbox => "the sandbox to stop".to_owned(),
        Method::RemovePodSandbox => "the sandbox to be removed".to_owned(),
        method => method.name().to_owned(),
    }
}

/// Writes who is at work, as a suffix.
fn write_work(f: &mut Formatter<'_>, worker: &LongestWorker<'_>) -> fmt::Result {
    match (worker.kind, worker.activity) {
        (WorkKind::Layers, host) if worker.name == AWAITED_MANIFEST => {
            let host = host.unwrap_or("its registry");
            write!(f, ": no manifest yet from {host} or a mirror")
        }
        (WorkKind::Layers, words) => {
            let verb = if worker.name == "unpack" {
                "unpacking"
            } else {
                "fetching"
            };
            write!(f, ": {verb} {}", words.unwrap_or("its layers"))
        }
        _ => write!(f, ": now in {worker}"),
    }
}
