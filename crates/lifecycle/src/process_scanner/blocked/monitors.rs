//! The calls that a shim, a container's process or a blocked thread of the runtime holds up.

use std::cell::LazyCell;
use std::collections::HashMap;

use super::super::clock::ClockReading;
use super::super::oci;
use super::super::processes::ProcessTable;
use super::super::target::{CandidateCall, match_ids};
use super::place::KernelLocation;
use super::suspects::SuspectProcess;

/// The calls that each shim or monitor names.
#[derive(Debug, Default)]
pub(super) struct MonitorCalls {
    /// By process: its start, the state of the calls when its command line was read, and the calls that it named.
    read: HashMap<u32, (u64, u64, Vec<u64>)>,
}

impl MonitorCalls {
    /// The shims and monitors of these calls. A command line is read once, and again when there are new calls.
    pub(super) fn calls_by_monitor(
        &mut self,
        processes: &mut ProcessTable,
        targets: &[CandidateCall],
    ) -> Vec<(u32, Vec<u64>)> {
        let newest = targets.iter().map(CandidateCall::knowledge).sum();
        let monitors = processes
            .iter()
            .filter(|(_, p)| oci::is_monitor(&p.comm) || oci::is_own_shim(&p.comm));
        let monitors: Vec<_> = monitors.map(|(pid, p)| (pid, p.start)).collect();
        self.read
            .retain(|pid, _| monitors.iter().any(|(monitor, _)| monitor == pid));
        for (pid, start) in &monitors {
            let known = self.read.get(pid);
            if known.is_some_and(|(of, at, _)| (of, at) == (start, &newest)) {
                continue;
            }
            let calls = processes.proc.texts(*pid, "cmdline", |cmdline| {
                let args = cmdline.split(|b| *b == 0).skip(1);
                let mut calls: Vec<_> =
                    args.flat_map(|arg| match_ids(targets, arg).calls).collect();
                calls.sort_unstable();
                calls.dedup();
                calls
            });
            self.read
                .insert(*pid, (*start, newest, calls.unwrap_or_default()));
        }
        let named = self
            .read
            .iter()
            .filter(|(_, (.., calls))| !calls.is_empty());
        named
            .map(|(pid, (.., calls))| (*pid, calls.clone()))
            .collect()
    }
}

/// The calls that wait for the end of a process below their shim: every call about the pod, and the call about the container
/// that the process's cgroup path names.
pub(super) fn calls_awaiting_end(
    processes: &ProcessTable,
    pid: u32,
    ending: &[&CandidateCall],
) -> Vec<u64> {
    let cgroup = LazyCell::new(|| {
        processes
            .proc
            .short(pid, None, "cgroup")
            .unwrap_or_default()
    });
    let all = ending
        .iter()
        .filter(|target| target.container().is_none_or(|id| cgroup.contains(id)));
    all.map(|target| target.seq).collect()
}

/// The calls that a blocked thread of the runtime holds up: the ones whose pod, sandbox or container its path names. A path
/// that names other objects holds up no call. A path that names nothing holds up the only call in flight, if that call began
/// before the thread was blocked.
pub(super) fn calls_concerned(
    targets: &[CandidateCall],
    suspect: &SuspectProcess,
    place: &KernelLocation,
    since: ClockReading,
) -> Vec<u64> {
    let own = targets.iter().filter(|t| suspect.calls.contains(&t.seq));
    let path = place.path.as_deref().unwrap_or_default();
    let named = match_ids(targets, path.as_bytes());
    if !named.calls.is_empty() {
        let calls = own.map(|t| t.seq).filter(|seq| named.calls.contains(seq));
        return calls.collect();
    }
    let mut own = own;
    match (own.next(), own.next()) {
        (Some(only), None) if !named.foreign && only.began <= since.boot => vec![only.seq],
        _ => Vec::new(),
    }
}
