//! Ends a command together with the processes that it has started.
//!
//! A process belongs to a command if it descends from it, if its session was begun for the command or by one of its descendants (so that
//! one whose parent has ended is found), or if it holds the command's output and was started after it in the same cgroup and PID
//! namespace (so that a daemon is found, which has left its parent and its session). A process that has left all three looks like one
//! of the container's own processes, and stays. The init processes of containers and other commands are never ended, nor the processes
//! in their sessions.
//!
//! All are stopped before any is killed: a stopped process does not fork, and its number is not used again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::protocol::{Kill, Target};
use super::requests::{Result, done, system};
use super::server::Shim;
use super::signal;
use super::stat::Stat;

/// How often the processes of a command are looked for, and the pause before they are looked for again.
const MAX_SWEEPS: usize = 50;
const SWEEP_AGAIN: Duration = Duration::from_millis(1);

/// How many descriptors of a process are looked at.
const MAX_DESCRIPTORS: usize = 1024;

/// A command, and what marks its processes.
#[derive(Debug)]
struct Command {
    leader: Stat,
    /// The processes of a shim that do not belong to the command.
    others: BTreeSet<u32>,
    /// The sessions of these, of the shim, and 0, the session of another PID namespace.
    other_sessions: BTreeSet<u32>,
    /// The links to its output in `/proc/PID/fd`.
    output: Vec<PathBuf>,
    /// The link to its PID namespace, and its cgroups.
    namespace: Option<PathBuf>,
    cgroups: String,
}

/// The processes of a command that were found.
#[derive(Debug)]
struct Family<'a> {
    command: &'a Command,
    members: BTreeMap<u32, OwnedFd>,
    sessions: BTreeSet<u32>,
}

impl Shim {
    /// Kills a command with the processes that it has started.
    pub(super) fn end_command(&mut self, asked: (u64, u64), target: Target) -> Result {
        let process = self.find(&target)?;
        if process.is_init() || process.task.is_some() || !process.is_alive() {
            let signal = Signal::KILL.as_raw();
            let all = false;
            return self.kill(
                asked,
                &Kill {
                    target,
                    signal,
                    all,
                },
            );
        }
        let number = process.number;
        self.end_descendants(number).map_err(system)?;
        done()
    }

    /// The leader is a child that was not reaped, so its number cannot have been used again.
    fn end_descendants(&self, number: u64) -> io::Result<()> {
        let Some(process) = self.process(number) else {
            return Ok(());
        };
        let others = self.processes.iter().filter(|one| one.is_alive());
        let others = others.map(|one| one.pid);
        let others = others.chain(self.jobs.iter().map(|job| job.pid));
        let others = others.chain([self.pid_namespace]);
        let others = others.filter(|pid| *pid != process.pid);
        let output = process.streams.pipes.iter().copied();
        match Command::new(process.pid, others.collect(), output) {
            Some(command) => command.end(),
            None => signal::send(process.pid, Signal::KILL.as_raw()),
        }
    }
}

impl Command {
    /// `None` if its leader is gone. `output` are the inodes of its pipes.
    fn new(
        leader: u32,
        mut others: BTreeSet<u32>,
        output: impl Iterator<Item = u64>,
    ) -> Option<Self> {
        others.insert(std::process::id());
        let sessions = others.iter().filter_map(|pid| Stat::read(*pid));
        let other_sessions = sessions.map(|stat| stat.session).chain([0]).collect();
        Some(Self {
            leader: Stat::read(leader)?,
            others,
            other_sessions,
            output: output
                .map(|inode| format!("pipe:[{inode}]").into())
                .collect(),
            namespace: namespace(leader),
            cgroups: cgroups(leader),
        })
    }

    fn end(&self) -> io::Result<()> {
        let mut family = Family {
            command: self,
            members: BTreeMap::new(),
            sessions: BTreeSet::new(),
        };
        for _ in 0..MAX_SWEEPS {
            if family.sweep() {
                break;
            }
            sleep(SWEEP_AGAIN);
        }
        for member in family.members.values() {
            // It may have ended meanwhile.
            let _gone = pidfd_send_signal(member, Signal::KILL);
        }
        if family.members.contains_key(&self.leader.pid) {
            return Ok(());
        }
        // A child that was not reaped, so that this cannot reach another process.
        signal::send(self.leader.pid, Signal::KILL.as_raw())
    }

    /// Returns whether a process holds the output of the command, and has nothing to do with other processes of the shim.
    fn has_output(&self, stat: &Stat) -> bool {
        stat.started >= self.leader.started
            && !self.other_sessions.contains(&stat.session)
            && !self.output.is_empty()
            && self.namespace.is_some()
            && namespace(stat.pid) == self.namespace
            && is_below(&cgroups(stat.pid), &self.cgroups)
            && descriptors(stat.pid).any(|link| self.output.contains(&link))
    }
}

impl Family<'_> {
    /// Stops the processes that were not found before. Returns whether there are none, and all others have stopped.
    fn sweep(&mut self) -> bool {
        let all = Stat::all();
        let mut is_complete = true;
        // Processes that end now, whose children are in the list as theirs.
        let mut ended = BTreeSet::new();
        loop {
            let unknown = all.iter().filter(|stat| !self.has(stat.pid, &ended));
            let new = unknown.filter_map(|stat| Some((*stat, self.kinship(stat, &ended)?)));
            let new: Vec<_> = new.collect();
            if new.is_empty() {
                break;
            }
            is_complete = false;
            for (stat, kinship) in new {
                if kinship == Kinship::Proven
                    && !self.command.other_sessions.contains(&stat.session)
                {
                    self.sessions.insert(stat.session);
                }
                match stop(&stat) {
                    Some(held) => drop(self.members.insert(stat.pid, held)),
                    None => drop(ended.insert(stat.pid)),
                }
            }
        }
        let mut members = all
            .iter()
            .filter(|stat| self.members.contains_key(&stat.pid));
        is_complete && members.all(Stat::is_still)
    }

    /// How a process belongs to the command; `None` if it does not.
    fn kinship(&self, stat: &Stat, ended: &BTreeSet<u32>) -> Option<Kinship> {
        let Command { leader, others, .. } = self.command;
        if others.contains(&stat.pid) || stat.started < leader.started {
            return None;
        }
        let is_proven = stat.pid == leader.pid
            || self.has(stat.parent, ended)
            || self.sessions.contains(&stat.session);
        if is_proven {
            return Some(Kinship::Proven);
        }
        self.command.has_output(stat).then_some(Kinship::Output)
    }

    /// Returns whether a process was found in this sweep or before.
    fn has(&self, pid: u32, ended: &BTreeSet<u32>) -> bool {
        self.members.contains_key(&pid) || ended.contains(&pid)
    }
}

/// Why a process belongs to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinship {
    /// It descends from the command, and so do all processes of its session.
    Proven,
    /// It holds the output of the command, which it may have been given.
    Output,
}

/// Stops a process and returns a descriptor that no other process can have; `None` if it has ended.
fn stop(stat: &Stat) -> Option<OwnedFd> {
    let pid = i32::try_from(stat.pid).ok().and_then(Pid::from_raw)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Checked with the descriptor held: the number may have been used again before it was opened.
    Stat::read(stat.pid).filter(|now| now.started == stat.started)?;
    let _ended_meanwhile = pidfd_send_signal(&held, Signal::STOP);
    Some(held)
}

fn namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

fn cgroups(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Returns whether a process is in the same cgroups as another one, or below them, by their `/proc/PID/cgroup`. A hierarchy that only
/// one of them has was mounted or unmounted between the reads.
fn is_below(cgroups: &str, above: &str) -> bool {
    let mut is_in_any = false;
    for (hierarchy, path) in cgroups.lines().filter_map(split_cgroup) {
        let mut others = above.lines().filter_map(split_cgroup);
        let Some((_, above)) = others.find(|(other, _)| *other == hierarchy) else {
            continue;
        };
        let rest = path.strip_prefix(above);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || above == "/") {
            return false;
        }
        is_in_any = true;
    }
    is_in_any
}

/// Splits a line of `/proc/PID/cgroup` into the controllers of the hierarchy and the path.
fn split_cgroup(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_once(':')
}

/// The links of the descriptors of a process.
fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = entries.flatten().take(MAX_DESCRIPTORS);
    links.filter_map(|entry| fs::read_link(entry.path()).ok())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command as Program, Stdio};
    use std::time::Instant;

    use super::*;

    /// Starts a script in a session of its own; returns it and the first line that it writes.
    fn start(script: &str) -> (Child, BufReader<std::process::ChildStdout>, String) {
        let mut child = Program::new("setsid")
            .args(["sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("setsid and sh");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        (child, output, line.trim().to_owned())
    }

    /// The running processes with this argument.
    fn with_argument(argument: &str) -> usize {
        let all = Stat::all().into_iter().filter(|stat| !stat.has_ended());
        let all = all.filter(|stat| {
            let arguments = fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
            let mut arguments = arguments.split(|byte| *byte == 0);
            arguments.any(|one| one == argument.as_bytes())
        });
        all.count()
    }

    fn wait_for(argument: &str, count: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while with_argument(argument) != count {
            let left = with_argument(argument);
            assert!(
                Instant::now() < end,
                "{argument}: {left} instead of {count}"
            );
            sleep(Duration::from_millis(5));
        }
    }

    fn number(output: &BufReader<std::process::ChildStdout>) -> u64 {
        use std::os::fd::AsFd as _;
        let file = output.get_ref().as_fd().try_clone_to_owned();
        let file = File::from(file.expect("a descriptor"));
        file.metadata().expect("a pipe").ino()
    }

    #[test]
    fn a_command_ends_with_all_that_it_has_started() {
        let sleep = format!("4{}", std::process::id());
        let bystander = format!("5{}", std::process::id());
        let (mut other, _output, _line) = start(&format!("sleep {bystander} & echo; wait"));
        // Children, a grandchild, a child with its own session and one whose parent has ended, an orphan that keeps the session and
        // one that keeps the output, and a child that is ended by SIGKILL alone.
        let script = format!(
            "trap '' TERM; sleep {sleep} & sh -c 'sleep {sleep} & wait' & setsid sleep {sleep} & \
             (sleep {sleep} > /dev/null &); (setsid sleep {sleep} &); \
             (setsid sh -c 'sleep {sleep} & sleep {sleep} > /dev/null & wait' &); echo; wait"
        );
        let (mut leader, output, _line) = start(&script);
        wait_for(&sleep, 7);
        let others = BTreeSet::from([other.id()]);
        let command = Command::new(leader.id(), others, [number(&output)].into_iter());
        command.expect("it runs").end().expect("ended");
        wait_for(&sleep, 0);
        leader.wait().expect("ended");
        assert_eq!(with_argument(&bystander), 1);
        let command = Command::new(other.id(), BTreeSet::new(), std::iter::empty());
        command.expect("it runs").end().expect("ended");
        other.wait().expect("ended");
        wait_for(&bystander, 0);
    }

    /// As of crun, which starts a command from a process that has begun the session and ends.
    #[test]
    fn the_leader_of_a_command_need_not_lead_its_session() {
        let sleep = format!("6{}", std::process::id());
        let inner = format!("sleep {sleep} & (sleep {sleep} > /dev/null &); wait");
        let (mut first, _output, leader) = start(&format!("sh -c '{inner}' & echo $!"));
        first.wait().expect("ended");
        wait_for(&sleep, 2);
        let leader = leader.parse().expect("a pid");
        assert_eq!(Stat::read(leader).expect("it runs").session, first.id());
        let command = Command::new(leader, BTreeSet::new(), std::iter::empty());
        command.expect("it runs").end().expect("ended");
        wait_for(&sleep, 0);
    }

    /// An OCI runtime may begin no session. That of the container's own processes says nothing then.
    #[test]
    fn nothing_in_the_session_of_another_process_is_ended() {
        let (sleep, bystander) = (
            format!("7{}", std::process::id()),
            format!("8{}", std::process::id()),
        );
        let script = format!(
            "sh -c 'sleep {sleep} & wait' & echo $!; sleep {bystander} & (sleep {bystander} &); wait"
        );
        let (mut init, output, leader) = start(&script);
        wait_for(&sleep, 1);
        wait_for(&bystander, 2);
        let others = BTreeSet::from([init.id()]);
        let leader = leader.parse().expect("a pid");
        let command = Command::new(leader, others, [number(&output)].into_iter());
        command.expect("it runs").end().expect("ended");
        wait_for(&sleep, 0);
        assert_eq!(with_argument(&bystander), 2);
        let command = Command::new(init.id(), BTreeSet::new(), std::iter::empty());
        command.expect("it runs").end().expect("ended");
        init.wait().expect("ended");
        wait_for(&bystander, 0);
    }

    #[test]
    fn cgroups_are_compared_by_whole_names() {
        let own = "2:cpu:/pod/c\n0::/pod/c\n";
        assert!(is_below(own, own));
        assert!(is_below("2:cpu:/pod/c/x\n0::/pod/c\n", own));
        assert!(is_below(own, "2:cpu:/\n0::/\n"));
        assert!(is_below(own, "3:hugetlb:/x\n2:cpu:/pod/c\n"));
        assert!(!is_below(own, "3:hugetlb:/pod/c\n"));
        for other in ["2:cpu:/pod/c\n0::/pod/cc\n", "2:cpu:/pod\n0::/pod/c\n", ""] {
            assert!(!is_below(other, own), "{other}");
            assert!(!is_below(own, ""), "unknown");
        }
    }
}
