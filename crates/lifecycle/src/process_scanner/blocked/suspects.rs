//! The processes that may hold a slow call up.

use super::super::processes::{ProcessTable, ScannedProcess};
use super::super::target::CandidateCall;
use super::monitors::{self, MonitorCalls};
use criscope_cri::Method;

/// Upper bound of processes in one check.
const MAX_SUSPECTS: usize = 128;

/// The part that a process has in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuspectRole {
    /// The runtime's daemon. It works for all its calls.
    Runtime,
    /// A shim or monitor of the pod, or a program at work for the call.
    Worker,
    /// A process of a container that is to end.
    Container,
}

/// A process to check.
#[derive(Debug)]
pub(super) struct SuspectProcess {
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) role: SuspectRole,
    /// The calls that the process works for.
    pub(super) calls: Vec<u64>,
}

/// The processes to check. `workers` are the processes at work for calls.
pub(super) fn suspects(
    processes: &mut ProcessTable,
    targets: &[CandidateCall],
    workers: &[(u32, u64)],
    monitors: &mut MonitorCalls,
) -> Vec<SuspectProcess> {
    let mut all = Vec::new();
    for upstream in &processes.upstreams {
        let calls = targets
            .iter()
            .filter(|t| !t.is_own && t.is_served_by(&upstream.backend));
        let calls: Vec<_> = calls.map(|t| t.seq).collect();
        let process = upstream
            .pid
            .and_then(|pid| Some((pid, processes.get(pid)?)));
        if let Some((pid, process)) = process
            && !calls.is_empty()
        {
            all.push(process.suspect(pid, SuspectRole::Runtime, calls));
        }
    }
    let own: Vec<_> = targets.iter().filter(|t| t.is_own).map(|t| t.seq).collect();
    let this = std::process::id();
    if let Some(process) = processes.get(this).filter(|_| !own.is_empty()) {
        all.push(process.suspect(this, SuspectRole::Runtime, own));
    }
    for (pid, seq) in workers {
        if let Some(process) = processes.get(*pid) {
            all.push(process.suspect(*pid, SuspectRole::Worker, vec![*seq]));
        }
    }
    let monitors = monitors.calls_by_monitor(processes, targets);
    for (monitor, calls) in monitors {
        let Some(process) = processes.get(monitor) else {
            continue;
        };
        all.push(process.suspect(monitor, SuspectRole::Worker, calls.clone()));
        let ending = targets.iter().filter(|t| ends_containers(t.method));
        let ending: Vec<_> = ending.filter(|t| calls.contains(&t.seq)).collect();
        if ending.is_empty() {
            continue;
        }
        let below = processes.iter().filter(|(_, p)| p.ppid == monitor);
        for (pid, process) in below.filter(|(_, p)| p.call.is_none()) {
            let calls = monitors::calls_awaiting_end(processes, pid, &ending);
            if !calls.is_empty() {
                all.push(process.suspect(pid, SuspectRole::Container, calls));
            }
        }
    }
    all.truncate(MAX_SUSPECTS);
    all
}

impl ScannedProcess {
    fn suspect(&self, pid: u32, role: SuspectRole, calls: Vec<u64>) -> SuspectProcess {
        SuspectProcess {
            pid,
            start: self.start,
            role,
            calls,
        }
    }
}

/// Returns whether calls of this method wait for containers to end.
const fn ends_containers(method: Method) -> bool {
    matches!(
        method,
        Method::StopContainer
            | Method::StopPodSandbox
            | Method::RemoveContainer
            | Method::RemovePodSandbox
    )
}
