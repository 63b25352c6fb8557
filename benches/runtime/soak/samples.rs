//! Readings of a daemon, every ten seconds.

use std::fs;
use std::time::Duration;

use criscope_testkit::bench::progress;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{Error, IoContext, Result};
use crate::process::{Process, Proportional};

/// Seconds between readings.
const EVERY: usize = 10;
/// Before the first reading, for what a start leaves to do.
const SETTLE: Duration = Duration::from_secs(5);

/// A daemon under load.
pub(super) struct Watched {
    pub(super) name: &'static str,
    pid: Pid,
    pub(super) before: Reading,
}

/// What a daemon holds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Reading {
    pub(crate) memory: Proportional,
    pub(crate) threads: usize,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
}

impl Watched {
    /// Reads it without load, and resets the peak of its memory.
    ///
    /// # Errors
    /// If `/proc` cannot be read; the same for the other functions.
    pub(super) fn new(name: &'static str, process: &Process) -> Result<Self> {
        std::thread::sleep(SETTLE);
        process.reset_peak()?;
        let mut watched = Self {
            name,
            pid: Pid::from_raw(process.pid().cast_signed()),
            before: Reading::default(),
        };
        watched.before = watched.read()?;
        Ok(watched)
    }

    #[allow(clippy::missing_errors_doc)]
    pub(super) fn read(&self) -> Result<Reading> {
        let count = |folder: &str| {
            let folder = format!("/proc/{}/{folder}", self.pid);
            let entries = fs::read_dir(&folder).during(|| format!("reading {folder}"))?;
            Ok::<_, Error>(entries.count())
        };
        Ok(Reading {
            memory: Proportional::of(self.pid.as_raw().cast_unsigned())?,
            threads: count("task")?,
            descriptors: count("fd")?,
        })
    }
}

impl Reading {
    /// The median of each value: a pull or a session that is in progress at one moment has buffers and descriptors.
    pub(crate) fn median(of: &[Self]) -> Self {
        fn median<T: Ord + Copy + Default>(values: impl Iterator<Item = T>) -> T {
            let mut values: Vec<T> = values.collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        }
        Self {
            memory: median(of.iter().map(|it| it.memory)),
            threads: median(of.iter().map(|it| it.threads)),
            descriptors: median(of.iter().map(|it| it.descriptors)),
        }
    }
}

/// Reads all daemons for some minutes. Returns a reading for each minute of each.
#[allow(clippy::missing_errors_doc)]
pub(super) async fn take<const N: usize>(
    minutes: usize,
    daemons: &[Watched; N],
) -> Result<[Vec<Reading>; N]> {
    let mut all = [(); N].map(|()| Vec::new());
    let mut clock = interval(Duration::from_secs(EVERY as u64));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    for minute in 1..=minutes {
        let mut readings = [(); N].map(|()| Vec::new());
        for _ in 0..60 / EVERY {
            clock.tick().await;
            for (daemon, readings) in daemons.iter().zip(&mut readings) {
                readings.push(daemon.read()?);
            }
        }
        for ((daemon, readings), all) in daemons.iter().zip(&readings).zip(&mut all) {
            let reading = Reading::median(readings);
            let Reading {
                memory,
                threads,
                descriptors,
            } = reading;
            progress(&format!(
                "minute {minute}, {}: {:.1} MB, {threads} threads, {descriptors} descriptors",
                daemon.name,
                memory.total as f64 / 1e6
            ));
            all.push(reading);
        }
    }
    Ok(all)
}
