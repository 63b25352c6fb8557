//! What `/proc/PID/stat` tells of a process (proc_pid_stat(5)).

use std::fs;

/// A process. Its numbers are those of the PID namespace of `/proc`; one of another namespace is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    /// One letter.
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) session: u32,
    /// Clock ticks since boot. With the pid it identifies a process.
    pub(super) started: u64,
}

impl Stat {
    /// Reads the status of a process; `None` if the process does not exist.
    pub(super) fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the status of all processes.
    pub(super) fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::read).collect()
    }

    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The name of the program may contain anything, including parentheses; fields are counted after it.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Returns whether it has ended and is not reaped, or is about to.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns whether it cannot fork before it gets another signal: it is stopped, has ended, or waits in the kernel.
    pub(super) fn is_still(&self) -> bool {
        self.has_ended() || matches!(self.state, b'T' | b't' | b'D')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let text = "7 (a) R 1 (b) S 3 4 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let stat = Stat {
            pid: 7,
            state: b'S',
            parent: 3,
            session: 5,
            started: 12345,
        };
        assert_eq!(Stat::parse(7, text), Some(stat));
        assert_eq!(Stat::parse(7, "7 (a) S 3"), None);
        let own = Stat::read(std::process::id()).expect("this process");
        assert!(own.started > 0 && !own.has_ended());
    }
}
