//! Ends of processes: reaped, recorded, told.

use rustix::process::WaitStatus;

use super::process::Process;
use super::protocol::{Event, Exit};
use super::server::Shim;
use super::{clock, record, signal};

/// Exits kept whose process is not known yet (it ended before the runtime's call that made it).
const MAX_EARLY: usize = 256;

/// Output read at the end of a process before its end is told, in pieces: what a pipe holds, and more.
const LAST_PIECES: usize = 128;

impl Shim {
    pub(super) fn reap(&mut self) {
        while let Some((pid, status)) = signal::reaped() {
            let at = clock::now();
            if let Some(job) = self.jobs.iter().position(|job| job.pid == pid) {
                let job = self.jobs.remove(job);
                self.finish(job, status.exit_status() == Some(0));
                if self.jobs.is_empty() {
                    self.early = Vec::new();
                }
            } else if self
                .processes
                .iter()
                .any(|process| process.pid == pid && process.exit.is_none())
            {
                self.ended(pid, status, at);
            } else if self.pid_namespace == pid {
                // Also while a call is under way: nobody else can have had this pid until now.
                self.pid_namespace = 0;
            } else if !self.jobs.is_empty() && self.early.len() < MAX_EARLY {
                self.early.push((pid, status, at));
            }
        }
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
