//! The clocks that the age of a process and the cost of a scan are read from.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

/// One moment on the clock of process starts and on the wall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Time since boot, sleep included: what `/proc/PID/stat` counts in (proc(5), field 22).
    pub(super) boot: Duration,
    /// The same moment on the wall clock.
    pub(super) wall: SystemTime,
}

impl Moment {
    /// Now. `None` if the kernel has no such clock.
    pub(super) fn now() -> Option<Self> {
        let boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
        Some(Self {
            boot,
            wall: SystemTime::now(),
        })
    }

    /// A time since boot on the wall clock.
    pub(super) fn wall_at(&self, boot: Duration) -> SystemTime {
        self.wall
            .checked_sub(self.boot.saturating_sub(boot))
            .unwrap_or(self.wall)
    }
}

/// The unit in which the kernel tells when a process started: 10 ms on every usual kernel.
pub(super) fn tick() -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(100);
    Duration::from_secs(1) / per_second.max(1)
}

/// CPU time that this thread has used.
pub(super) fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
