//! Exits of processes: reaped, recorded, reported.

use rustix::process::WaitStatus;

use super::job::Purpose;
use super::process::Process;
use super::protocol::{Event, Exit};
use super::server::Shim;
use super::{clock, record, signal};

/// Maximum number of reads of a process's remaining output before its exit is reported: more than a pipe holds.
const LAST_PIECES: usize = 128;

impl Shim {
    /// Reaps the processes that have exited.
    ///
    /// A process may exit before the OCI runtime call that created it has returned its pid, among any number of orphans
    /// that the shim adopted (all those of a pod that shares the node's PID namespace). So while such a call is running,
    /// unknown children are not reaped: until then the pid cannot be reused, the kernel keeps the exit status, and the
    /// cgroup still counts the process, so that nothing is lost or confused.
    pub(super) fn reap(&mut self) {
        while let Some(pid) = signal::ended() {
            if self.is_known(pid) || !self.is_making() {
                self.reap_one(pid);
            } else if !self.reap_known() {
                return;
            }
        }
    }

    fn is_known(&self, pid: u32) -> bool {
        let mut processes = self.processes.iter();
        self.pid_namespace == pid
            || self.is_containerd_shim(pid)
            || self.jobs.iter().any(|job| job.pid == pid)
            || processes.any(|process| process.pid == pid && process.is_child())
    }

    /// Returns whether an OCI runtime call that creates a process is running.
    fn is_making(&self) -> bool {
        let mut purposes = self.jobs.iter().map(|job| job.purpose);
        purposes.any(|purpose| matches!(purpose, Purpose::Make | Purpose::PidNamespace))
    }

    /// Reaps known processes one by one; returns whether there were any.
    fn reap_known(&mut self) -> bool {
        let jobs = self.jobs.iter().map(|job| job.pid);
        let alive = self.processes.iter().filter(|process| process.is_child());
        let mut known: Vec<_> = jobs.chain(alive.map(|process| process.pid)).collect();
        known.extend((self.pid_namespace != 0).then_some(self.pid_namespace));
        let mut any = false;
        for pid in known {
            any |= self.reap_one(pid);
        }
        any
    }

    fn reap_one(&mut self, pid: u32) -> bool {
        let Some(status) = signal::reap(pid) else {
            return false;
        };
        if let Some(job) = self.jobs.iter().position(|job| job.pid == pid) {
            let job = self.jobs.remove(job);
            self.finish(job, status);
        } else if self.pid_namespace == pid {
            self.pid_namespace = 0;
            self.pid_namespace_held = None;
            self.tell(&Event::PidNamespaceEnded(pid));
        } else if self.is_containerd_shim(pid) {
            self.containerd_shim_ended(pid);
        } else {
            self.ended(pid, status, clock::now());
        }
        true
    }

    /// Records the exit of a process, and only then reports it.
    pub(super) fn ended(&mut self, pid: u32, status: WaitStatus, at: u64) {
        let Some(process) = self
            .processes
            .iter()
            .find(|process| process.pid == pid && process.is_child())
        else {
            return;
        };
        let number = process.number;
        let (code, signal) = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => (128 + signal, signal),
            (None, code) => (code.unwrap_or(255), 0),
        };
        let exit = Exit {
            pid,
            code,
            signal,
            at,
            ..Exit::default()
        };
        self.conclude(number, exit);
    }

    /// Like [`Self::ended`], for an exit that is known.
    pub(super) fn conclude(&mut self, number: u64, exit: Exit) {
        let Some(process) = self.process(number) else {
            return;
        };
        if process.is_init() {
            // The log must be complete before its exit is reported, even if another process still reads the streams.
            self.pump_rest(number);
        } else {
            self.pump_last(number, Self::may_pump);
        }
        let mut events = [None, None];
        self.with(number, |process| {
            // The kill that ended it, or came just before, is reported first.
            events[0] = process.count_kills();
            let oom_kills = process.oom.take().map_or(0, |oom| oom.kills);
            let exit = Exit {
                target: process.target.clone(),
                oom_kills,
                ..exit
            };
            if process.is_init() {
                // Without disk space it is still reported, and remembered while the shim runs.
                let _ = record::write_exit(&exit);
            }
            process.streams.drop_input();
            process.exit = Some(exit.clone());
            events[1] = Some(Event::Exit(exit));
        });
        for event in events.iter().flatten() {
            self.tell(event);
        }
    }

    /// Reads the remaining output of a process that has exited. Slow attached clients do not limit it, because they no
    /// longer block a process.
    pub(super) fn pump_rest(&mut self, number: u64) {
        for connection in &mut self.connections {
            if connection.attached.is_some_and(|a| a.process == number) {
                connection.make_room();
            }
        }
        self.pump_last(number, |_, process, _| !process.held);
    }

    fn pump_last(&mut self, number: u64, may: impl Fn(&Self, &Process, usize) -> bool) {
        for which in 0..2 {
            for _ in 0..LAST_PIECES {
                let process = self.process(number);
                let may = process.is_some_and(|process| may(self, process, which));
                if !may || !self.pump(number, which) {
                    break;
                }
            }
        }
    }
}
