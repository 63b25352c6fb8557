//! Processes that hold a call up because they cannot go on: the runtime, its shims, the containers that are to be stopped, and
//! the programs at work for the call. They are stopped, frozen, or blocked in the kernel.
//!
//! A thread is blocked if it is seen in the same place for a second. The time is from the first look at it, at most half a
//! second after the call became slow.
//!
//! | module | what |
//! |---|---|
//! | `freezer` | frozen cgroups |
//! | `syscalls`, `place`, `mounts` | where in the kernel a thread is |
//! | `monitors` | which shim belongs to which call |

mod freezer;
mod monitors;
mod mounts;
mod place;
mod syscalls;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::monitors::Monitors;
use self::place::{Finder, Place};
use self::syscalls::Entry;
use super::clock::Moment;
use super::observations::{Observation, WorkKind};
use super::proc::{Proc, shown};
use super::processes::{Process, Processes};
use super::target::Target;
use crate::cri::Method;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Interval between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// How long a process must be held up before that is said: a disk that is read is no reason.
const LEAST: Duration = Duration::from_secs(1);

/// How many looks must agree.
const LOOKS: u32 = 3;

/// Most processes of one look, and most threads of one process.
const PROCESSES: usize = 128;
const THREADS: usize = 128;

/// Most observations of one call.
const OBSERVATIONS: usize = 16;

/// Which part a process has in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The runtime's daemon. It works for all its calls.
    Runtime,
    /// A shim or monitor of the pod, or a program at work for the call.
    Worker,
    /// A process of a container that is to end.
    Container,
}

/// A process that is looked at.
#[derive(Debug)]
struct Suspect {
    pid: u32,
    start: u64,
    role: Role,
    /// The calls that it works for.
    calls: Vec<u64>,
}

/// A thread, or a process as a whole (thread 0), from its start.
type Key = (u32, u64, u32);

/// How it is held up.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    Stopped,
    Traced,
    Frozen,
    /// In this line of `syscall`, in this state.
    Kernel(String, u8),
}

/// What is held up, over several looks.
#[derive(Debug)]
struct Hold {
    how: How,
    since: Moment,
    looks: u32,
    /// The number of the last look.
    seen: u64,
    place: Option<Place>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Blocked {
    cgroups: PathBuf,
    finder: Finder,
    monitors: Monitors,
    holds: HashMap<Key, Hold>,
    observations: HashMap<u64, Vec<(Key, Observation)>>,
    look: u64,
    /// When the last look was, since boot.
    looked: Option<Duration>,
}

/// How a process is held up as a whole, and the words for it.
fn whole(proc: &Proc, pid: u32, state: u8, cgroups: &Path) -> Option<(How, &'static str)> {
    let groups = || proc.short(pid, None, "cgroup").unwrap_or_default();
    match state {
        b'T' => Some((How::Stopped, "stopped by a signal")),
        b't' => Some((How::Traced, "stopped by a debugger")),
        _ if freezer::is_frozen(&groups(), cgroups) => Some((How::Frozen, "frozen by its cgroup")),
        _ => None,
    }
}

/// The name of a process that is held up as a whole, and how: `containerd is stopped by a signal`. Reads `/proc` and
/// `/sys/fs/cgroup`.
pub(in crate::lifecycle) fn held(pid: u32) -> Option<String> {
    let proc = Proc::new(Path::new("/proc"));
    let stat = proc.stat(pid).ok()?;
    let (_, how) = whole(&proc, pid, stat.state, Path::new(CGROUPS))?;
    Some(format!("{} is {how}", shown(stat.comm.bytes())))
}

/// Something that was found, for the calls that it holds up.
struct Finding {
    key: Key,
    name: Arc<str>,
    held: Arc<str>,
    since: SystemTime,
    calls: Vec<u64>,
}

impl Default for Blocked {
    fn default() -> Self {
        Self {
            cgroups: Path::new(CGROUPS).to_owned(),
            finder: Finder::default(),
            monitors: Monitors::default(),
            holds: HashMap::new(),
            observations: HashMap::new(),
            look: 0,
            looked: None,
        }
    }
}

impl Blocked {
    /// Drops all state; called when no call is slow.
    pub(super) fn forget(&mut self) {
        self.monitors = Monitors::default();
        self.holds = HashMap::new();
        self.observations = HashMap::new();
        self.looked = None;
    }

    /// The observations of a call, in the order in which they were made.
    pub(super) fn of(&self, seq: u64) -> impl Iterator<Item = &Observation> {
        let all = self.observations.get(&seq).into_iter().flatten();
        all.map(|(_, observation)| observation)
    }

    /// The calls that have observations.
    pub(super) fn calls(&self) -> impl Iterator<Item = u64> {
        self.observations.keys().copied()
    }

    /// Looks, unless it was done a moment ago. `workers` are the processes at work for calls. Returns new observations.
    pub(super) fn look(
        &mut self,
        processes: &mut Processes,
        targets: &[Target],
        workers: &[(u32, u64)],
        now: &Moment,
    ) -> Vec<(u64, WorkKind, Arc<str>)> {
        self.observations
            .retain(|seq, _| targets.iter().any(|t| t.seq == *seq));
        let soon = |last: Duration| now.boot.saturating_sub(last) < EVERY;
        if self.looked.is_some_and(soon) {
            return Vec::new();
        }
        self.looked = Some(now.boot);
        self.look += 1;
        let suspects = self.suspects(processes, targets, workers);
        let mut new = Vec::new();
        for suspect in &suspects {
            for finding in self.findings(processes, suspect, targets, now) {
                self.note(finding, targets, now, &mut new);
            }
        }
        let look = self.look;
        self.holds.retain(|_, hold| hold.seen == look);
        new
    }

    /// The processes to look at.
    fn suspects(
        &mut self,
        processes: &mut Processes,
        targets: &[Target],
        workers: &[(u32, u64)],
    ) -> Vec<Suspect> {
        let mut all = Vec::new();
        let suspect = |pid, process: &Process, role, calls| Suspect {
            pid,
            start: process.start,
            role,
            calls,
        };
        for upstream in &processes.upstreams {
            let calls = targets.iter().filter(|t| t.is_of(&upstream.backend));
            let calls: Vec<_> = calls.map(|t| t.seq).collect();
            let process = upstream
                .pid
                .and_then(|pid| Some((pid, processes.get(pid)?)));
            if let Some((pid, process)) = process
                && !calls.is_empty()
            {
                all.push(suspect(pid, process, Role::Runtime, calls));
            }
        }
        for (pid, seq) in workers {
            if let Some(process) = processes.get(*pid) {
                all.push(suspect(*pid, process, Role::Worker, vec![*seq]));
            }
        }
        let monitors = self.monitors.of(processes, targets);
        for (monitor, calls) in monitors {
            let Some(process) = processes.get(monitor) else {
                continue;
            };
            all.push(suspect(monitor, process, Role::Worker, calls.clone()));
            let ending = targets.iter().filter(|t| ends_containers(t.method));
            let ending: Vec<_> = ending.filter(|t| calls.contains(&t.seq)).collect();
            if ending.is_empty() {
                continue;
            }
            let below = processes.iter().filter(|(_, p)| p.ppid == monitor);
            for (pid, process) in below.filter(|(_, p)| p.call.is_none()) {
                let calls = monitors::ends(processes, pid, &ending);
                if !calls.is_empty() {
                    all.push(suspect(pid, process, Role::Container, calls));
                }
            }
        }
        all.truncate(PROCESSES);
        all
    }

    /// What holds up a process, or some of its threads.
    fn findings(
        &mut self,
        processes: &Processes,
        suspect: &Suspect,
        targets: &[Target],
        now: &Moment,
    ) -> Vec<Finding> {
        let Suspect { pid, start, .. } = *suspect;
        let proc = &processes.proc;
        let Some(stat) = proc.stat(pid).ok().filter(|stat| stat.start == start) else {
            return Vec::new();
        };
        let name = match suspect.role {
            Role::Container => format!("process {pid} of the container").into(),
            _ => processes.name(pid, &stat.comm),
        };
        let whole = whole(proc, pid, stat.state, &self.cgroups);
        if let Some((how, held)) = whole {
            let since = self.hold((pid, start, 0), &how, now);
            let since = since
                .filter(|hold| hold.is_long(now))
                .map(|hold| hold.since.wall);
            let finding = since.map(|since| Finding {
                key: (pid, start, 0),
                name,
                held: held.into(),
                since,
                calls: suspect.calls.clone(),
            });
            return finding.into_iter().collect();
        }
        let threads = proc.threads(pid).into_iter().flatten().take(THREADS);
        let threads: Vec<_> = threads.collect();
        let in_kernel = threads.into_iter().filter_map(|thread| {
            let place = self.thread(processes, suspect, thread, now)?;
            let calls = match suspect.role {
                Role::Runtime => monitors::concerned(targets, suspect, &place.1, place.0),
                _ => suspect.calls.clone(),
            };
            Some(Finding {
                key: (pid, start, thread),
                name: Arc::clone(&name),
                held: place.1.words(),
                since: place.0.wall,
                calls,
            })
        });
        in_kernel.filter(|it| !it.calls.is_empty()).collect()
    }

    /// Since when and where a thread is blocked; `None` if it is not, or not for long.
    fn thread(
        &mut self,
        processes: &Processes,
        suspect: &Suspect,
        thread: u32,
        now: &Moment,
    ) -> Option<(Moment, Place)> {
        let (proc, pid) = (&processes.proc, suspect.pid);
        let state = proc.thread_state(pid, thread).ok()?;
        let sleeps = match state {
            b'D' => false,
            // A container's own sleep is its own affair.
            b'S' if suspect.role != Role::Container => true,
            _ => return None,
        };
        let line = proc.short(pid, Some(thread), "syscall").unwrap_or_default();
        let entry = Entry::parse(&line);
        let known = entry.and_then(|it| it.known());
        if sleeps && known.is_none() {
            return None;
        }
        let hold = self.hold((pid, suspect.start, thread), &How::Kernel(line, state), now)?;
        if !hold.is_long(now) {
            return None;
        }
        let since = hold.since;
        let place = match hold.place.clone() {
            Some(place) => place,
            None => {
                let symbols = symbols(processes, pid, thread);
                let own_paths = suspect.role != Role::Container;
                let dir = proc.dir(pid, None);
                let place = self.finder.find(&dir, entry, &symbols, own_paths);
                let after = proc.short(pid, Some(thread), "syscall").unwrap_or_default();
                let hold = self.holds.get_mut(&(pid, suspect.start, thread))?;
                // It went on while it was looked at.
                if !matches!(&hold.how, How::Kernel(before, _) if *before == after) {
                    return None;
                }
                hold.place.insert(place).clone()
            }
        };
        let waits = sleeps && known.is_some_and(|it| it.often_waits) && !place.is_served();
        (!waits).then_some((since, place))
    }

    /// Records how something is held up.
    fn hold(&mut self, key: Key, how: &How, now: &Moment) -> Option<&Hold> {
        let look = self.look;
        let hold = self.holds.entry(key).or_insert_with(|| Hold::new(how, now));
        if hold.how != *how || hold.seen + 1 < look {
            *hold = Hold::new(how, now);
        }
        hold.looks += 1;
        hold.seen = look;
        Some(hold)
    }

    /// Adds a finding to the observations of its calls.
    fn note(
        &mut self,
        finding: Finding,
        targets: &[Target],
        now: &Moment,
        new: &mut Vec<(u64, WorkKind, Arc<str>)>,
    ) {
        for seq in finding.calls {
            let Some(target) = targets.iter().find(|t| t.seq == seq) else {
                continue;
            };
            let all = self.observations.entry(seq).or_default();
            let same = |(key, it): &&mut (Key, Observation)| {
                *key == finding.key && it.activity.as_deref() == Some(&*finding.held)
            };
            if let Some((_, known)) = all.iter_mut().find(same) {
                known.last_seen = now.wall;
            } else if all.len() < OBSERVATIONS {
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

impl Hold {
    fn new(how: &How, now: &Moment) -> Self {
        Self {
            how: how.clone(),
            since: *now,
            looks: 0,
            seen: 0,
            place: None,
        }
    }

    fn is_long(&self, now: &Moment) -> bool {
        self.looks >= LOOKS && now.boot.saturating_sub(self.since.boot) >= LEAST
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

/// The kernel's functions that a thread is in, the innermost first: all of them if we may read them, or the one it waits in.
fn symbols(processes: &Processes, pid: u32, thread: u32) -> Vec<String> {
    let read = |file| {
        processes
            .proc
            .short(pid, Some(thread), file)
            .unwrap_or_default()
    };
    let stack = read("stack");
    // `[<0>] rpc_wait_bit_killable+0x1a/0xb0 [sunrpc]`
    let functions = stack.lines().filter_map(|line| {
        let function = line.split_once("] ")?.1;
        let name = function.split(['+', ' ']).next()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    let mut functions: Vec<_> = functions.collect();
    let waits_in = read("wchan");
    if functions.is_empty() && !matches!(waits_in.as_str(), "" | "0") {
        functions.push(waits_in);
    }
    functions
}
