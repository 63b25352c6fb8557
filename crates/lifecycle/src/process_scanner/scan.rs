//! One scan: the processes that work for calls in flight, and their activity.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::blocked::BlockedProcesses;
use super::clock::{self, ClockReading};
use super::cni;
use super::observations::{Observation, WorkKind};
use super::proc::{ProcFs, shown};
use super::processes::{ProcessKind, ProcessTable, ScannedProcess};
use super::target::{self, CandidateCall, IdMatches, NamedCalls, OciProcess};
use super::upstream::Upstream;
use criscope_cri::call::Call;

/// Upper bound of observations for one call.
const MAX_OBSERVATIONS: usize = 64;

/// Upper bound of activities that are kept of a process.
const MAX_ACTIVITIES: usize = 8;

/// Longest chain of programs that started each other.
const MAX_PROGRAM_CHAIN: usize = 3;

/// A process that works for a call, from its first to its last scan.
#[derive(Debug)]
struct WorkingProcess {
    pid: u32,
    start: u64,
    observation: Observation,
    /// Activities, and the number of scans that saw each.
    activities: Vec<(Arc<str>, u32)>,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    /// Time of the scan.
    pub(super) at: Option<SystemTime>,
    /// Observations so far, by call.
    pub(super) calls: Vec<(u64, Vec<Observation>)>,
    /// Work observed for the first time, and its call.
    pub(super) new: Vec<(u64, WorkKind, Arc<str>)>,
}

/// Scans, and keeps state between scans.
#[derive(Debug)]
pub(super) struct ProcessScanner {
    processes: ProcessTable,
    tick: Duration,
    seen: HashMap<u64, Vec<WorkingProcess>>,
    /// Ids of sandboxes under creation, by the call that creates them.
    sandboxes: HashMap<u64, Arc<str>>,
    blocked: BlockedProcesses,
}

impl ProcessScanner {
    pub(super) fn new(proc: ProcFs) -> Self {
        Self {
            processes: ProcessTable::new(proc),
            tick: clock::tick(),
            seen: HashMap::new(),
            sandboxes: HashMap::new(),
            blocked: BlockedProcesses::default(),
        }
    }

    /// Sets the runtimes behind the proxy.
    pub(super) fn set_upstreams(&mut self, upstreams: Vec<Upstream>) {
        self.processes.upstreams = upstreams;
    }

    /// See [`ProcessTable::is_limited`].
    pub(super) fn is_limited(&self) -> bool {
        self.processes.is_limited()
    }

    /// See [`ProcessTable::sees_others`].
    pub(super) fn sees_others(&self) -> bool {
        self.processes.sees_others()
    }

    /// Drops all state; called when no call is slow.
    pub(super) fn rest(&mut self) {
        self.processes.forget();
        self.seen = HashMap::new();
        self.sandboxes = HashMap::new();
        self.blocked.forget();
    }

    /// Scans once. `calls` are all calls in flight: a process may work for one that is not slow.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub(super) fn scan(&mut self, calls: &[Arc<Call>]) -> io::Result<ScanResult> {
        let now = ClockReading::now().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        self.scan_at(calls, now)
    }

    /// The scan at this moment.
    pub(super) fn scan_at(
        &mut self,
        calls: &[Arc<Call>],
        now: ClockReading,
    ) -> io::Result<ScanResult> {
        let targets = calls
            .iter()
            .filter_map(|call| CandidateCall::new(call, now.boot));
        let (own, mut targets): (Vec<_>, Vec<_>) = targets.partition(|target| target.is_own);
        self.seen
            .retain(|seq, _| targets.iter().any(|t| t.seq == *seq));
        self.sandboxes
            .retain(|seq, _| targets.iter().any(|t| t.seq == *seq));
        for target in &mut targets {
            if let Some(sandbox) = self.sandboxes.get(&target.seq) {
                target.learn(sandbox);
            }
        }
        let Some(oldest) = targets.iter().chain(&own).map(|t| t.began).min() else {
            return Ok(ScanResult::default());
        };
        self.processes.scan(self.ticks(oldest), now.boot)?;
        let entered: HashMap<_, _> = calls.iter().map(|c| (c.seq, c.started_at)).collect();
        let mut found = ScanResult {
            at: Some(now.wall),
            ..ScanResult::default()
        };
        if !targets.is_empty() {
            for pid in self.processes.young() {
                self.attribute(pid, &mut targets);
                found.new.extend(self.note(pid, &now, &entered));
            }
            self.note_activities();
        }
        let workers = self.workers();
        targets.extend(own);
        let new = self
            .blocked
            .look(&mut self.processes, &targets, &workers, &now);
        found.new.extend(new);
        found.calls = self.observations();
        Ok(found)
    }

    /// The processes at work for calls, and the processes that they started.
    fn workers(&self) -> Vec<(u32, u64)> {
        let young = self.processes.young().into_iter();
        let working = young.filter_map(|pid| {
            let call = match self.processes.get(pid)?.call {
                Some(call) => call,
                None => self.processes.get(self.worker_above(pid)?)?.call?,
            };
            Some((pid, call))
        });
        working.collect()
    }

    /// All observations, by call.
    fn observations(&self) -> Vec<(u64, Vec<Observation>)> {
        let mut calls: Vec<_> = self.seen.keys().copied().collect();
        calls.extend(
            self.blocked
                .calls()
                .filter(|seq| !self.seen.contains_key(seq)),
        );
        let observations = calls.into_iter().map(|seq| {
            let seen = self.seen.get(&seq).into_iter().flatten();
            let mut all: Vec<_> = seen.map(|process| process.observation.clone()).collect();
            all.extend(self.blocked.for_call(seq).cloned());
            all.sort_by_key(|observation| observation.began);
            (seq, all)
        });
        observations.collect()
    }

    /// Ticks since boot, rounded down as the kernel does.
    fn ticks(&self, time: Duration) -> u64 {
        u64::try_from(time.as_nanos() / self.tick.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    fn time(&self, ticks: u64) -> Duration {
        let tick = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(ticks.saturating_mul(tick))
    }

    /// Assigns a process to a call, unless an ancestor is assigned.
    fn attribute(&mut self, pid: u32, targets: &mut [CandidateCall]) {
        let Some(process) = self.processes.get(pid).filter(|p| p.call.is_none()) else {
            return;
        };
        if self.worker_above(pid).is_some() {
            return;
        }
        // A process started in the tick in which the call was received counts as started after it.
        let start = self.time(process.start + 1);
        let call = match &process.kind {
            ProcessKind::Plugin(plugin) => {
                let target = target::find_plugin_call(targets, plugin, start);
                let sandbox = plugin.sandbox.as_deref().map(Arc::from);
                let seq = target.map(|t| t.seq);
                if let (Some(seq), Some(sandbox)) = (seq, sandbox) {
                    for target in targets.iter_mut().filter(|t| t.seq == seq) {
                        target.learn(&sandbox);
                    }
                    self.sandboxes.insert(seq, sandbox);
                }
                seq
            }
            ProcessKind::Runtime(command) => {
                let command = *command;
                let monitor = self.processes.ancestors(pid);
                let monitor = monitor.filter(|(_, p)| super::oci::is_monitor(&p.comm));
                let monitor = monitor.map(|(pid, p)| (pid, self.time(p.start + 1))).next();
                let owner = self.processes.owner(pid, monitor.map(|(pid, _)| pid));
                let named = self.named(pid, targets);
                let monitor = monitor.map(|(pid, start)| (self.named(pid, targets), start));
                let runtime = OciProcess {
                    command,
                    start,
                    named: &named,
                    monitor: monitor.as_ref().map(|(named, start)| (named, *start)),
                    owner: &owner,
                };
                target::find_runtime_call(targets, &runtime).map(|t| t.seq)
            }
            ProcessKind::Plain => {
                let seq = self.call_of_helper(pid, start, targets);
                if let Some(process) = self.processes.get_mut(pid).filter(|_| seq.is_some()) {
                    process.kind = ProcessKind::Helper;
                }
                seq
            }
            _ => None,
        };
        if let Some(process) = self.processes.get_mut(pid) {
            process.call = call;
        }
    }

    /// The call for which the runtime started another program.
    fn call_of_helper(
        &mut self,
        pid: u32,
        start: Duration,
        targets: &[CandidateCall],
    ) -> Option<u64> {
        let process = self.processes.get(pid)?;
        let (comm, parent) = (process.comm, self.processes.get(process.ppid)?);
        // Between fork and exec a process is a copy of its parent. A monitor waits for the OCI runtime that it has started.
        if parent.comm == comm || super::oci::is_monitor(&comm) {
            return None;
        }
        let mut upstreams = self.processes.upstreams.iter();
        let upstream = upstreams.find(|upstream| upstream.pid == Some(process.ppid))?;
        let backend = Arc::clone(&upstream.backend);
        let cmdline = self.processes.proc.texts(pid, "cmdline", |cmdline| {
            let args = cmdline.split(|b| *b == 0).skip(1);
            args.map(|arg| target::match_ids(targets, arg))
                .reduce(IdMatches::merge)
                .unwrap_or_default()
        });
        target::find_helper_call(targets, &comm, &cmdline.ok()?, &backend, start).map(|t| t.seq)
    }

    /// The calls that a command line names.
    fn named(&mut self, pid: u32, targets: &[CandidateCall]) -> NamedCalls {
        let mut named = NamedCalls::default();
        // A process that has exited names no call.
        let _ = self.processes.proc.texts(pid, "cmdline", |texts| {
            super::oci::read(texts, |part| named.compare(targets, part))
        });
        named
    }

    /// The highest known ancestor that works for the same call.
    fn worker_above(&self, pid: u32) -> Option<u32> {
        let workers = self
            .processes
            .ancestors(pid)
            .take_while(|(_, p)| !matches!(p.kind, ProcessKind::Old))
            .filter(|(_, p)| p.call.is_some());
        workers.last().map(|(pid, _)| pid)
    }

    /// Records that a process still runs, if it works for a call. Returns whether that is new.
    fn note(
        &mut self,
        pid: u32,
        now: &ClockReading,
        entered: &HashMap<u64, SystemTime>,
    ) -> Option<(u64, WorkKind, Arc<str>)> {
        let process = self.processes.get(pid)?;
        let seq = process.call?;
        // The process may outlive its call.
        let entered = entered.get(&seq)?;
        let (start, began) = (process.start, self.time(process.start));
        let seen = self.seen.entry(seq).or_default();
        let known = seen.iter_mut().find(|s| (s.pid, s.start) == (pid, start));
        if let Some(known) = known {
            known.observation.last_seen = now.wall;
            return None;
        }
        if seen.len() >= MAX_OBSERVATIONS {
            return None;
        }
        let (work, command, activity) = match &process.kind {
            ProcessKind::Runtime(command) => (WorkKind::Oci, None, Some(command.name().into())),
            ProcessKind::Helper => (WorkKind::Helper, None, None),
            ProcessKind::Plugin(plugin) => {
                let command = plugin.command.and_then(cni::CniCommand::name);
                (WorkKind::Cni, command.map(Arc::from), None)
            }
            _ => return None,
        };
        // The tick in which the process started may have begun before the call.
        let began = now.wall_at(began).max(*entered).min(now.wall);
        let began = in_order(began, start, seen);
        let name = self.processes.name(pid, &process.comm);
        let new = (seq, work, Arc::clone(&name));
        let observation = Observation {
            work,
            name,
            command,
            activity,
            began,
            last_seen: now.wall.max(began),
        };
        seen.push(WorkingProcess {
            pid,
            start,
            observation,
            activities: Vec::new(),
        });
        seen.sort_by_key(|s| s.observation.began);
        Some(new)
    }

    /// Records the activity of each working process: the longest chain of programs below it.
    fn note_activities(&mut self) {
        let mut chains: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in self.processes.young() {
            let Some(worker) = self.worker_above(pid) else {
                continue;
            };
            let below = self.processes.ancestors(pid).map(|(pid, _)| pid);
            let mut chain: Vec<_> = std::iter::once(pid)
                .chain(below.take_while(|p| *p != worker))
                .collect();
            chain.reverse();
            let longest = chains.entry(worker).or_default();
            // Of two equally long chains the younger one counts.
            if chain.len() >= longest.len() {
                *longest = chain;
            }
        }
        for seen in self.seen.values_mut().flatten() {
            let Some(worker) = self
                .processes
                .get(seen.pid)
                .filter(|p| p.start == seen.start)
            else {
                continue;
            };
            let chain = chains.get(&seen.pid).map_or(&[][..], Vec::as_slice);
            let chain = chain.iter().filter_map(|pid| self.processes.get(*pid));
            if let Some(activity) = activity(worker, chain) {
                seen.count(activity);
            }
        }
    }
}

impl WorkingProcess {
    /// Counts an activity; the most frequent one is shown.
    fn count(&mut self, activity: Arc<str>) {
        let known = self
            .activities
            .iter_mut()
            .find(|(known, _)| *known == activity);
        if let Some((_, scans)) = known {
            *scans += 1;
        } else if self.activities.len() < MAX_ACTIVITIES {
            self.activities.push((activity, 1));
        }
        let most = self.activities.iter().max_by_key(|(_, scans)| *scans);
        self.observation.activity = most.map(|(activity, _)| Arc::clone(activity));
    }
}

/// The begin of a process, in the order of the ticks in which processes started: their begins come from several readings of two clocks,
/// which do not agree to the microsecond.
fn in_order(began: SystemTime, start: u64, seen: &[WorkingProcess]) -> SystemTime {
    let (earlier, later): (Vec<_>, Vec<_>) = seen.iter().partition(|other| other.start <= start);
    let earliest = earlier.iter().map(|other| other.observation.began).max();
    let latest = later.iter().map(|other| other.observation.began).min();
    let began = earliest.map_or(began, |earliest| began.max(earliest));
    latest.map_or(began, |latest| began.min(latest))
}

/// The activity of a process: its command, and the programs it has started, without forked copies.
fn activity<'a>(
    worker: &ScannedProcess,
    chain: impl Iterator<Item = &'a ScannedProcess>,
) -> Option<Arc<str>> {
    let mut words: Vec<Arc<str>> = Vec::new();
    let mut last = worker.comm;
    if let ProcessKind::Runtime(command) = &worker.kind {
        words.push(command.name().into());
    }
    for process in chain {
        // `runc:[2:INIT]` is the container under creation.
        let copy = process.comm == last || process.comm.bytes().contains(&b':');
        if copy || words.len() >= MAX_PROGRAM_CHAIN {
            continue;
        }
        last = process.comm;
        words.push(shown(process.comm.bytes()));
    }
    match words.len() {
        0 => None,
        _ => Some(words.join("/").into()),
    }
}
