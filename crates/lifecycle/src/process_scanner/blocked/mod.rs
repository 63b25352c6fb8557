//! Blocked processes that hold a call up: the runtime, its shims, the containers to be stopped, and the programs at work for
//! the call. They are stopped, frozen, or blocked in the kernel.
//!
//! A thread counts as blocked once checks have found it in the same place for a second. The time counts from the first
//! check, at most half a second after the call became slow.
//!
//! | module | content |
//! |---|---|
//! | `freezer` | frozen cgroups |
//! | `syscalls`, `place`, `mounts` | where in the kernel a thread is |
//! | `monitors` | the calls that each shim works for |
//! | `suspects` | the processes to check |

mod freezer;
mod monitors;
mod mounts;
mod place;
mod suspects;
mod syscalls;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::monitors::MonitorCalls;
use self::place::{KernelLocation, LocationFinder};
use self::suspects::{SuspectProcess, SuspectRole, suspects};
use self::syscalls::SyscallEntry;
use super::clock::ClockReading;
use super::observations::{Observation, WorkKind};
use super::proc::{ProcFs, shown};
use super::processes::ProcessTable;
use super::target::CandidateCall;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a process must be blocked before it is reported. Ordinary disk reads are shorter.
const MIN_BLOCKED_TIME: Duration = Duration::from_secs(1);

/// Number of checks in a row that must find a process blocked in the same place.
const MIN_BLOCKED_LOOKS: u32 = 3;

/// Upper bound of threads that are checked in one process.
const MAX_THREADS: usize = 128;

/// Upper bound of observations for one call.
const MAX_OBSERVATIONS: usize = 16;

/// Process id, start time in ticks, and thread id; thread 0 stands for the process as a whole.
type ThreadKey = (u32, u64, u32);

/// The reason why a thread or process cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BlockReason {
    Stopped,
    Traced,
    Frozen,
    /// Blocked in the kernel: the line of `syscall`, and the state.
    Kernel(String, u8),
}

/// A thread or process that several checks found blocked.
#[derive(Debug)]
struct BlockedThread {
    how: BlockReason,
    since: ClockReading,
    looks: u32,
    /// The number of the last check that found it.
    last_look: u64,
    place: Option<KernelLocation>,
}

/// Finds the blocked processes behind slow calls, and keeps state between checks.
#[derive(Debug)]
pub(super) struct BlockedProcesses {
    cgroups: PathBuf,
    finder: LocationFinder,
    monitors: MonitorCalls,
    holds: HashMap<ThreadKey, BlockedThread>,
    observations: HashMap<u64, Vec<(ThreadKey, Observation)>>,
    /// The number of this check.
    look: u64,
    /// Time since boot of the last check.
    looked: Option<Duration>,
}

/// The reason why a process as a whole cannot go on, and the words for it.
fn process_block(
    proc: &ProcFs,
    pid: u32,
    state: u8,
    cgroups: &Path,
) -> Option<(BlockReason, &'static str)> {
    match state {
        b'T' => Some((BlockReason::Stopped, "stopped by a signal")),
        b't' => Some((BlockReason::Traced, "stopped by a debugger")),
        _ => {
            let groups = proc.short(pid, None, "cgroup").unwrap_or_default();
            freezer::is_frozen(&groups, cgroups)
                .then_some((BlockReason::Frozen, "frozen by its cgroup"))
        }
    }
}

/// A sentence about a process that is blocked as a whole: `containerd is stopped by a signal`. Reads `/proc` and
/// `/sys/fs/cgroup`.
pub(crate) fn describe_blocked_process(pid: u32) -> Option<String> {
    let proc = ProcFs::new(Path::new("/proc"));
    let stat = proc.stat(pid).ok()?;
    let (_, how) = process_block(&proc, pid, stat.state, Path::new(CGROUP_ROOT))?;
    Some(format!("{} is {how}", shown(stat.comm.bytes())))
}

/// A blocked process or thread, and the calls that it holds up.
struct BlockFinding {
    key: ThreadKey,
    name: Arc<str>,
    held: Arc<str>,
    since: SystemTime,
    calls: Vec<u64>,
}

impl Default for BlockedProcesses {
    fn default() -> Self {
        Self {
            cgroups: Path::new(CGROUP_ROOT).to_owned(),
            finder: LocationFinder::default(),
            monitors: MonitorCalls::default(),
            holds: HashMap::new(),
            observations: HashMap::new(),
            look: 0,
            looked: None,
        }
    }
}

impl BlockedProcesses {
    /// Drops all state; called when no call is slow.
    pub(super) fn forget(&mut self) {
        self.monitors = MonitorCalls::default();
        self.holds = HashMap::new();
        self.observations = HashMap::new();
        self.looked = None;
    }

    /// The observations of a call, in the order in which they were made.
    pub(super) fn for_call(&self, seq: u64) -> impl Iterator<Item = &Observation> {
        let all = self.observations.get(&seq).into_iter().flatten();
        all.map(|(_, observation)| observation)
    }

    /// The calls that have observations.
    pub(super) fn calls(&self) -> impl Iterator<Item = u64> {
        self.observations.keys().copied()
    }

    /// Checks the processes, unless the last check was a moment ago. `workers` are the processes at work for calls. Returns
    /// new observations.
    pub(super) fn look(
        &mut self,
        processes: &mut ProcessTable,
        targets: &[CandidateCall],
        workers: &[(u32, u64)],
        now: &ClockReading,
    ) -> Vec<(u64, WorkKind, Arc<str>)> {
        self.observations
            .retain(|seq, _| targets.iter().any(|t| t.seq == *seq));
        if self
            .looked
            .is_some_and(|last| now.boot.saturating_sub(last) < LOOK_INTERVAL)
        {
            return Vec::new();
        }
        self.looked = Some(now.boot);
        self.look += 1;
        let suspects = suspects(processes, targets, workers, &mut self.monitors);
        let mut new = Vec::new();
        for suspect in &suspects {
            for finding in self.findings(processes, suspect, targets, now) {
                self.note(finding, targets, now, &mut new);
            }
        }
        let look = self.look;
        self.holds.retain(|_, hold| hold.last_look == look);
        new
    }

    /// The reasons why a process, or some of its threads, cannot go on.
    fn findings(
        &mut self,
        processes: &ProcessTable,
        suspect: &SuspectProcess,
        targets: &[CandidateCall],
        now: &ClockReading,
    ) -> Vec<BlockFinding> {
        let SuspectProcess { pid, start, .. } = *suspect;
        let proc = &processes.proc;
        let Some(stat) = proc.stat(pid).ok().filter(|stat| stat.start == start) else {
            return Vec::new();
        };
        let name = match suspect.role {
            SuspectRole::Container => format!("process {pid} of the container").into(),
            _ => processes.name(pid, &stat.comm),
        };
        let block = process_block(proc, pid, stat.state, &self.cgroups);
        if let Some((how, held)) = block {
            let since = self.hold((pid, start, 0), &how, now);
            let since = since
                .filter(|hold| hold.is_long(now))
                .map(|hold| hold.since.wall);
            let finding = since.map(|since| BlockFinding {
                key: (pid, start, 0),
                name,
                held: held.into(),
                since,
                calls: suspect.calls.clone(),
            });
            return finding.into_iter().collect();
        }
        let threads = proc.threads(pid).into_iter().flatten().take(MAX_THREADS);
        let threads: Vec<_> = threads.collect();
        let in_kernel = threads.into_iter().filter_map(|thread| {
            let place = self.thread(processes, suspect, thread, now)?;
            let calls = match suspect.role {
                SuspectRole::Runtime => {
                    monitors::calls_concerned(targets, suspect, &place.1, place.0)
                }
                _ => suspect.calls.clone(),
            };
            Some(BlockFinding {
                key: (pid, start, thread),
                name: Arc::clone(&name),
                held: place.1.words(),
                since: place.0.wall,
                calls,
            })
        });
        in_kernel
            .filter(|finding| !finding.calls.is_empty())
            .collect()
    }

    /// The place in the kernel where a thread is blocked, and since when; `None` if it is not blocked, or not for long.
    fn thread(
        &mut self,
        processes: &ProcessTable,
        suspect: &SuspectProcess,
        thread: u32,
        now: &ClockReading,
    ) -> Option<(ClockReading, KernelLocation)> {
        let (proc, pid) = (&processes.proc, suspect.pid);
        let state = proc.thread_state(pid, thread).ok()?;
        let sleeps = match state {
            b'D' => false,
            // A container may sleep as long as it likes.
            b'S' if suspect.role != SuspectRole::Container => true,
            _ => return None,
        };
        let line = proc.short(pid, Some(thread), "syscall").unwrap_or_default();
        let entry = SyscallEntry::parse(&line);
        let known = entry.and_then(|entry| entry.blocking_syscall());
        if sleeps && known.is_none() {
            return None;
        }
        let hold = self.hold(
            (pid, suspect.start, thread),
            &BlockReason::Kernel(line, state),
            now,
        )?;
        if !hold.is_long(now) {
            return None;
        }
        let since = hold.since;
        let place = match hold.place.clone() {
            Some(place) => place,
            None => {
                let symbols = proc.kernel_functions(pid, thread);
                let own_paths = suspect.role != SuspectRole::Container;
                let dir = proc.dir(pid, None);
                let place = self.finder.find(&dir, entry, &symbols, own_paths);
                let after = proc.short(pid, Some(thread), "syscall").unwrap_or_default();
                let hold = self.holds.get_mut(&(pid, suspect.start, thread))?;
                // The thread went on during the check.
                if !matches!(&hold.how, BlockReason::Kernel(before, _) if *before == after) {
                    return None;
                }
                hold.place.insert(place).clone()
            }
        };
        let waits = sleeps && known.is_some_and(|call| call.often_waits) && !place.is_served();
        (!waits).then_some((since, place))
    }

    /// Records that a thread or process is blocked.
    fn hold(
        &mut self,
        key: ThreadKey,
        how: &BlockReason,
        now: &ClockReading,
    ) -> Option<&BlockedThread> {
        let look = self.look;
        let hold = self
            .holds
            .entry(key)
            .or_insert_with(|| BlockedThread::new(how, now));
        if hold.how != *how || hold.last_look + 1 < look {
            *hold = BlockedThread::new(how, now);
        }
        hold.looks += 1;
        hold.last_look = look;
        Some(hold)
    }

    /// Adds a finding to the observations of its calls.
    fn note(
        &mut self,
        finding: BlockFinding,
        targets: &[CandidateCall],
        now: &ClockReading,
        new: &mut Vec<(u64, WorkKind, Arc<str>)>,
    ) {
        for seq in finding.calls {
            let Some(target) = targets.iter().find(|t| t.seq == seq) else {
                continue;
            };
            let all = self.observations.entry(seq).or_default();
            let known = all.iter_mut().find(|(key, observation)| {
                *key == finding.key && observation.activity.as_deref() == Some(&*finding.held)
            });
            if let Some((_, known)) = known {
                known.last_seen = now.wall;
            } else if all.len() < MAX_OBSERVATIONS {
                let observation = Observation {
                    work: WorkKind::Blocked,
                    name: Arc::clone(&finding.name),
                    command: None,
                    activity: Some(Arc::clone(&finding.held)),
                    began: finding.since.max(now.wall_at(target.began)).min(now.wall),
                    last_seen: now.wall,
                };
                all.push((finding.key, observation));
                new.push((seq, WorkKind::Blocked, Arc::clone(&finding.name)));
            }
        }
    }
}

impl BlockedThread {
    fn new(how: &BlockReason, now: &ClockReading) -> Self {
        Self {
            how: how.clone(),
            since: *now,
            looks: 0,
            last_look: 0,
            place: None,
        }
    }

    fn is_long(&self, now: &ClockReading) -> bool {
        self.looks >= MIN_BLOCKED_LOOKS
            && now.boot.saturating_sub(self.since.boot) >= MIN_BLOCKED_TIME
    }
}
