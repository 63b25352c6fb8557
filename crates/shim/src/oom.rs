//! Counts kills by the OOM killer, from `memory.events` of cgroup v2 and `memory.oom_control` of v1.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The memory cgroup of a container. The open file can be read until the cgroup is removed.
#[derive(Debug)]
pub(super) struct Oom {
    counts: File,
    /// v1 notifies through an eventfd.
    event: Option<EventFd>,
    pub(super) kills: u64,
}

impl Oom {
    /// The memory cgroup of a process; `None` without a memory controller.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mut unified = None;
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            if controllers.split(',').any(|name| name == "memory") {
                return Self::v1(&format!("/sys/fs/cgroup/memory{path}")).ok();
            }
            if controllers.is_empty() {
                unified = Some(path);
            }
        }
        let counts = File::open(format!("/sys/fs/cgroup{}/memory.events", unified?)).ok()?;
        Some(Self {
            counts,
            event: None,
            kills: 0,
        })
    }

    fn v1(dir: &str) -> io::Result<Self> {
        let counts = File::open(format!("{dir}/memory.oom_control"))?;
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let mut control = OpenOptions::new()
            .write(true)
            .open(format!("{dir}/cgroup.event_control"))?;
        let line = format!("{} {}", event.as_fd().as_raw_fd(), counts.as_raw_fd());
        control.write_all(line.as_bytes())?;
        Ok(Self {
            counts,
            event: Some(event),
            kills: 0,
        })
    }

    pub(super) fn poll(&self) -> (BorrowedFd<'_>, PollFlags) {
        match &self.event {
            Some(event) => (event.as_fd(), PollFlags::POLLIN),
            None => (self.counts.as_fd(), PollFlags::POLLPRI),
        }
    }

    /// Updates the counter; returns whether it has increased, or an error if the cgroup was removed.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        if let Some(event) = &self.event {
            let _ = event.read();
        }
        let mut room = [0; 512];
        self.counts.rewind()?;
        let len = self.counts.read(&mut room)?;
        let text = String::from_utf8_lossy(&room[..len]);
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .and_then(|n| n.parse().ok());
        let before = self.kills;
        self.kills = count.unwrap_or(before);
        Ok(self.kills > before)
    }
}
