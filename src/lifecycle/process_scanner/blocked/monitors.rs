//! Which call a shim, a container's process or a blocked thread of the runtime concerns.

use std::collections::HashMap;

use super::super::clock::Moment;
use super::super::oci;
use super::super::processes::Processes;
use super::super::target::{Target, traces};
use super::Suspect;
use super::place::Place;

/// The calls that each shim or monitor names.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    /// By process: its start, the newest call when it was read, and the calls that it named.
    read: HashMap<u32, (u64, u64, Vec<u64>)>,
}

impl Monitors {
    /// The shims and monitors of these calls. A command line is read once, and again when there are new calls.
    pub(super) fn of(
        &mut self,
        processes: &mut Processes,
        targets: &[Target],
    ) -> Vec<(u32, Vec<u64>)> {
        let newest = targets.iter().map(Target::known).sum();
        let monitors = processes.iter().filter(|(_, p)| oci::is_monitor(&p.comm));
        let monitors: Vec<_> = monitors.map(|(pid, p)| (pid, p.start)).collect();
        self.read
            .retain(|pid, _| monitors.iter().any(|(it, _)| it == pid));
        for (pid, start) in &monitors {
            let known = self.read.get(pid);
            if known.is_some_and(|(of, at, _)| (of, at) == (start, &newest)) {
                continue;
            }
            let calls = processes.proc.texts(*pid, "cmdline", |cmdline| {
                let args = cmdline.split(|b| *b == 0).skip(1);
                let mut calls: Vec<_> = args.flat_map(|arg| traces(targets, arg).calls).collect();
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

/// The calls that wait for the end of a process below their shim: those about the pod, and that about its container, which
/// the path of its cgroup names.
pub(super) fn ends(processes: &Processes, pid: u32, ending: &[&Target]) -> Vec<u64> {
    let cgroup = || {
        processes
            .proc
            .short(pid, None, "cgroup")
            .unwrap_or_default()
    };
    let all = ending.iter().filter(|target| match target.container() {
        None => true,
        Some(id) => cgroup().contains(id),
    });
    all.map(|target| target.seq).collect()
}

/// The calls that a blocked thread of the runtime concerns: those whose pod, sandbox or container the path names. A path that
/// names others concerns none. One that names nothing concerns a call only if there is no other, and it began before.
pub(super) fn concerned(
    targets: &[Target],
    suspect: &Suspect,
    place: &Place,
    since: Moment,
) -> Vec<u64> {
    let own = targets.iter().filter(|t| suspect.calls.contains(&t.seq));
    let path = place.path.as_deref().unwrap_or_default();
    let named = traces(targets, path.as_bytes());
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
