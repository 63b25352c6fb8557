//! Clocks for the age of a process and the cost of a scan.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

/// Two reads of the boot clock that are closer than this had no wait in between.
const READS_ARE_CLOSE: Duration = Duration::from_micros(50);

/// Upper bound of tries to read both clocks at one moment.
const MAX_READS: usize = 4;

/// One moment on the boot clock and on the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    /// Time since boot including suspend, the clock of `/proc/PID/stat` (proc(5), field 22).
    pub(super) boot: Duration,
    /// Time of day.
    pub(super) wall: SystemTime,
}

impl ClockReading {
    /// Reads both clocks. `None` if the kernel lacks the boot clock. A thread that has to wait between the two reads tries again, so
    /// that they are about one moment.
    pub(super) fn now() -> Option<Self> {
        let mut closest: Option<(Duration, Self)> = None;
        for _ in 0..MAX_READS {
            let boot = boot_time()?;
            let wall = SystemTime::now();
            let gap = boot_time()?.saturating_sub(boot);
            if closest.is_none_or(|(least, _)| gap < least) {
                closest = Some((gap, Self { boot, wall }));
            }
            if gap < READS_ARE_CLOSE {
                break;
            }
        }
        closest.map(|(_, reading)| reading)
    }

    /// A time since boot on the wall clock.
    pub(super) fn wall_at(&self, boot: Duration) -> SystemTime {
        self.wall
            .checked_sub(self.boot.saturating_sub(boot))
            .unwrap_or(self.wall)
    }
}

fn boot_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

/// The unit of process start times: 10 ms on every usual kernel.
pub(super) fn tick() -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(100);
    Duration::from_secs(1) / per_second.max(1)
}

/// CPU time of this thread.
pub(super) fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
