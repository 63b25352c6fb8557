//! Counts kills by the OOM killer, from `memory.events` of cgroup v2 and `memory.oom_control` of v1.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The pause before the counter is read again, doubled each time, and the longest. v1 notifies before it kills, and the report that
/// the kernel prints in between can take long on a serial console.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The memory cgroup of a container. The open file can be read until the cgroup is removed.
#[derive(Debug)]
pub(super) struct Oom {
    /// `None` once the cgroup was removed.
    counts: Option<File>,
    /// v1 notifies through an eventfd.
    event: Option<EventFd>,
    pub(super) kills: u64,
    /// When to read the counter again, and the pause after that.
    again: Option<(Instant, Duration)>,
}

impl Oom {
    /// The memory cgroup of a process; `None` without a memory controller.
    pub(super) fn watch(pid: u32) -> Option<Self> {
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
            counts: Some(counts),
            event: None,
            kills: 0,
            again: None,
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
            counts: Some(counts),
            event: Some(event),
            kills: 0,
            again: None,
        })
    }

    /// The descriptors to wait for; none once the cgroup was removed.
    pub(super) fn poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let counts = self.counts.as_ref()?;
        Some(match &self.event {
            Some(event) => (event.as_fd(), PollFlags::POLLIN),
            None => (counts.as_fd(), PollFlags::POLLPRI),
        })
    }

    /// When the counter is to be read again without a notification.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.map(|(due, _)| due)
    }

    /// Updates the counter after a notification, or when that is due; returns whether it has increased.
    pub(super) fn read(&mut self) -> bool {
        let before = self.kills;
        let is_notified = self
            .event
            .as_ref()
            .is_some_and(|event| event.read().is_ok());
        match self.counts.as_mut().map(count) {
            Some(Ok(kills)) => self.kills = kills.unwrap_or(before),
            // The cgroup was removed.
            Some(Err(_)) => self.counts = None,
            None => {}
        }
        let pause = match self.again {
            _ if self.counts.is_none() => None,
            _ if is_notified => Some(PAUSE),
            Some((_, pause)) if pause <= LONGEST_PAUSE => Some(pause),
            _ => None,
        };
        self.again = pause.map(|pause| (Instant::now() + pause, 2 * pause));
        self.kills > before
    }
}

fn count(counts: &mut File) -> io::Result<Option<u64>> {
    let mut room = [0; 512];
    counts.rewind()?;
    let len = counts.read(&mut room)?;
    let text = String::from_utf8_lossy(&room[..len]);
    let mut lines = text.lines();
    let kills = lines.find_map(|line| line.strip_prefix("oom_kill "));
    Ok(kills.and_then(|kills| kills.parse().ok()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn set(counts: &mut File, kills: u64) {
        counts.rewind().expect("rewound");
        write!(counts, "oom_kill_disable 0\noom_kill {kills}\n").expect("written");
    }

    /// Reads as often as is due; returns how often the counter has increased.
    fn read_all(oom: &mut Oom) -> usize {
        let mut increased = 0;
        for _ in 0..20 {
            if oom.due().is_none() {
                return increased;
            }
            increased += usize::from(oom.read());
        }
        panic!("it is read without end");
    }

    /// The format of cgroup v1.
    #[test]
    fn a_kill_after_its_notification_is_counted() {
        let mut file = tempfile::tempfile().expect("a file");
        set(&mut file, 0);
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("an eventfd");
        let mut oom = Oom {
            counts: Some(file.try_clone().expect("a descriptor")),
            event: Some(event),
            kills: 0,
            again: None,
        };
        let notify = |oom: &Oom| oom.event.as_ref().expect("an eventfd").write(1);
        assert!(!oom.read() && oom.due().is_none());
        notify(&oom).expect("notified");
        assert!(!oom.read());
        set(&mut file, 1);
        assert_eq!((read_all(&mut oom), oom.kills), (1, 1));
        // Two notifications may come as one, before the second kill.
        notify(&oom).expect("notified");
        set(&mut file, 2);
        assert!(oom.read());
        set(&mut file, 3);
        assert_eq!((read_all(&mut oom), oom.kills), (1, 3));
        // As when the limit is hit until the killed process has gone.
        notify(&oom).expect("notified");
        assert!(!oom.read());
        assert_eq!((read_all(&mut oom), oom.kills), (0, 3));
    }
}
