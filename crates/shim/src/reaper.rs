//! Ends of processes: reaped, recorded, told.

use rustix::process::WaitStatus;

use super::job::Purpose;
use super::process::Process;
use super::protocol::{Event, Exit};
use super::server::Shim;
use super::{clock, record, signal};

/// Output read at the end of a process before its end is told, in pieces: what a pipe holds, and more.
const LAST_PIECES: usize = 128;

impl Shim {
    /// Reaps what has ended.
    ///
    /// Whose end it is must be known first: a process may end before the call of the OCI runtime that made it has said which
    /// one it is, among any number of others that were left to the shim (a pod that shares the node's processes leaves it all
    /// its orphans). So as long as such a call is under way no child is reaped that is not known. Until then its pid is
    /// nobody else's, the kernel keeps how it ended, and its cgroup counts it: nothing is kept here, lost or mistaken.
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
            || self.jobs.iter().any(|job| job.pid == pid)
            || processes.any(|process| process.pid == pid && process.exit.is_none())
    }

    /// Whether a call is under way that makes a process.
    fn is_making(&self) -> bool {
        let mut purposes = self.jobs.iter().map(|job| job.purpose);
        purposes.any(|purpose| matches!(purpose, Purpose::Make | Purpose::PidNamespace))
    }

    /// Reaps those that are known, one by one; whether there was one.
    fn reap_known(&mut self) -> bool {
        let jobs = self.jobs.iter().map(|job| job.pid);
        let alive = self.processes.iter().filter(|process| process.is_alive());
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
            self.finish(job, status.exit_status() == Some(0));
        } else if self.pid_namespace == pid {
            self.pid_namespace = 0;
            self.pid_namespace_held = None;
            self.tell(&Event::PidNamespaceEnded(pid));
        } else {
            self.ended(pid, status, clock::now());
        }
        true
    }

    /// Records the end of a process, and only then tells of it.
    pub(super) fn ended(&mut self, pid: u32, status: WaitStatus, at: u64) {
        let Some(process) = self
            .processes
            .iter()
            .find(|process| process.pid == pid && process.exit.is_none())
        else {
            return;
        };
        let number = process.number;
        if process.is_init() {
            // Its log is to be whole before its end is told, whoever else reads it.
            self.pump_rest(number);
        } else {
            self.pump_last(number, Self::may_pump);
        }
        let (code, signal) = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => (128 + signal, signal),
            (None, code) => (code.unwrap_or(255), 0),
        };
        let mut event = None;
        self.with(number, |process| {
            if let Some(oom) = &mut process.oom {
                let _ = oom.read();
            }
            let oom_kills = process.oom.take().map_or(0, |oom| oom.kills);
            let exit = Exit {
                target: process.target.clone(),
                pid,
                code,
                signal,
                oom_kills,
                at,
            };
            if process.is_init() {
                // Without room on the disk it is still told, and known as long as the shim lives.
                let _ = record::write_exit(&exit);
            }
            process.streams.drop_input();
            process.exit = Some(exit.clone());
            event = Some(Event::Exit(exit));
        });
        if let Some(event) = event {
            self.tell(&event);
        }
    }

    /// Reads what a process that has ended left behind, and has room for it whatever those attached have not read yet: they
    /// can take their time, there is nobody any more whom they would hold up.
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
                let mut all = self.processes.iter();
                let process = all.find(|process| process.number == number);
                let may = process.is_some_and(|process| may(self, process, which));
                if !may || !self.pump(number, which) {
                    break;
                }
            }
        }
    }
}
