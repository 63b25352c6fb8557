//! Exits of processes of a containerd shim, and the end of the containerd shim itself.

use std::fs;
use std::time::{Duration, Instant};

use criscope_wire::Timestamp;
use criscope_wire::task::{ProcessRequest, WaitResponse};

use super::super::job::{Job, Purpose};
use super::super::protocol::{Exit, SYSTEM};
use super::super::requests::failure;
use super::super::server::Shim;
use super::super::signal;
use super::super::{clock, protocol::Answer};
use super::LAST_OUTPUT;
use super::calls::Result;
use super::connection::Call;

/// The code of a container that was killed because no process observes its exit, as of containerd's shims.
const KILLED: i32 = 137;

/// How long the cleanup of a container may take.
const CLEANING: Duration = Duration::from_secs(30);

impl Shim {
    /// Handles an exit. That of a container is told once its output has ended, so that its log is complete.
    pub(super) fn task_waited(&mut self, number: u64, waited: Result<WaitResponse>) {
        let exit = match waited {
            Ok(waited) => Exit {
                code: waited.exit_status.cast_signed(),
                at: waited
                    .exited_at
                    .as_ref()
                    .and_then(nanoseconds)
                    .unwrap_or_else(clock::now),
                ..Exit::default()
            },
            Err(error) => unobserved(error.message),
        };
        let mut is_exec = false;
        self.with(number, |process| {
            process.streams.release();
            is_exec = !process.is_init();
            if let Some(task) = &mut process.task {
                task.ending = Some((exit, Instant::now() + LAST_OUTPUT));
            }
        });
        // The client of an exec reads to the end itself.
        if is_exec {
            self.task_ended(number);
        }
    }

    /// Records and tells an exit.
    pub(crate) fn task_ended(&mut self, number: u64) {
        let mut found = None;
        self.with(number, |process| {
            if let Some(task) = &mut process.task
                && let Some((exit, _)) = task.ending.take()
            {
                let target = process.target.clone();
                found = Some((exit, task.delete.take(), target, process.pid));
            }
        });
        let Some((exit, delete, target, pid)) = found else {
            return;
        };
        self.conclude(number, Exit { pid, ..exit });
        if !target.exec.is_empty() {
            let request = ProcessRequest {
                id: target.container,
                exec_id: target.exec,
            };
            if let Some(connection) = self.connection(number) {
                let about = (number, None);
                let timeout = Some(CLEANING);
                let _fits = connection.call_method(Call::Other, "Delete", about, &request, timeout);
            }
        } else if let Some(asked) = delete {
            let done = self.delete_ended(asked, number, &target.container);
            if let Some(answer) = done.unwrap_or_else(|error| Some(Answer::Failed(error))) {
                self.answer(asked.0, asked.1, &answer);
            }
        }
    }

    /// Handles the end of a containerd shim: its containers can no longer be controlled or observed, and are killed.
    pub(super) fn lose_containerd_shim(&mut self, number: u64) {
        let Some(task) = &mut self.task else { return };
        let Some(at) = task.shims.iter().position(|shim| shim.number == number) else {
            return;
        };
        let mut shim = task.shims.remove(at);
        let why = shim.reason();
        shim.remove_socket();
        for pending in shim.connection.abandon() {
            if pending.call != Call::Wait {
                self.task_answered(pending, Err(failure(SYSTEM, why.clone())));
            }
        }
        let of_shim = self.processes.iter().filter(|one| {
            let task = one.task.as_ref();
            task.is_some_and(|task| task.shim == number)
        });
        let alive = of_shim.filter(|one| one.is_alive());
        let alive: Vec<_> = alive.map(|one| (one.number, one.is_init())).collect();
        for (number, is_init) in alive {
            self.with(number, |process| {
                process.streams.release();
                if let Some(task) = &mut process.task {
                    task.ending.get_or_insert_with(|| {
                        (unobserved(why.clone()), Instant::now() + CLEANING)
                    });
                }
            });
            let cleaning = self.process(number).filter(|_| is_init);
            match cleaning.map(|process| self.clean_up(process)) {
                Some(Ok(pid)) => self.jobs.push(Job {
                    pid,
                    purpose: Purpose::TaskCleanup,
                    process: number,
                    connection: 0,
                    request: 0,
                    deadline: Instant::now() + CLEANING,
                    timed_out: false,
                    words: None,
                    console: None,
                }),
                _ => {
                    self.kill_left(number);
                    self.task_ended(number);
                }
            }
        }
    }

    /// Kills the init of a container that the cleanup left: the `delete` of runwasi's shims ends nothing. Such a process has become a child of
    /// this shim, so its pid is not reused. gVisor's has one process for several containers, in a cgroup of the sandbox container or of the pod.
    pub(crate) fn kill_left(&self, number: u64) {
        if let Some(process) = self.process(number).filter(|one| one.is_init())
            && signal::is_child(process.pid)
            && is_in_cgroup_of(process.pid, &process.target.container)
        {
            let _ended_meanwhile = signal::send(process.pid, nix::libc::SIGKILL);
        }
    }

    /// Returns whether a child is a containerd shim.
    pub(crate) fn is_containerd_shim(&self, pid: u32) -> bool {
        let mut shims = self.task.iter().flat_map(|task| &task.shims);
        shims.any(|shim| shim.pid == pid)
    }

    /// Handles the end of a child that is one.
    pub(crate) fn containerd_shim_ended(&mut self, pid: u32) {
        let mut shims = self.task.iter().flat_map(|task| &task.shims);
        if let Some(number) = shims.find(|shim| shim.pid == pid).map(|shim| shim.number) {
            self.lose_containerd_shim(number);
        }
    }
}

/// Returns whether a process is in a cgroup that is named after a container.
fn is_in_cgroup_of(pid: u32, container: &str) -> bool {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut names = cgroups.lines().filter_map(|line| line.rsplit('/').next());
    names.any(|name| name.contains(container))
}

fn unobserved(why: String) -> Exit {
    Exit {
        code: KILLED,
        at: clock::now(),
        unobserved: why,
        ..Exit::default()
    }
}

/// Nanoseconds since 1970; `None` if the time is not set.
fn nanoseconds(time: &Timestamp) -> Option<u64> {
    let seconds = u64::try_from(time.seconds).ok()?;
    if seconds == 0 {
        return None;
    }
    Some(seconds * 1_000_000_000 + u64::try_from(time.nanos).unwrap_or(0))
}
