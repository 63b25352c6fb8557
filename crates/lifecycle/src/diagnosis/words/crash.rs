//! Sentences on crash loops.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::exit::{after, code, ended_by, hint};
use super::request::memory_limit;
use super::{ago_of, duration, times};
use crate::diagnosis::crash::CrashLoop;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::UnixMicros;

/// A shorter run is not told: the container may end at any moment.
const MIN_RUN_TOLD: Duration = Duration::from_secs(1);

impl Display for CrashLoop<'_> {
    /// `app was OOMKilled 5 times in 1m 47s (exit code 137 after 1.7 s, limit 24 MiB)`,
    /// `app keeps crashing: exit code 1 after 0.2 s, 5 starts in 2 min; up for 3 s`,
    /// `app has been up for 24 s after 2 exits, the last 26 s ago (exit code 9 after 2 s)`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(run) = self.settled_for {
            return self.write_settled(f, run);
        }
        let (name, last) = (self.container, self.last);
        let (code, after) = (code(last), after(last));
        if last.is_out_of_memory() {
            write!(f, "{name} was OOMKilled {}", times(self.alike))?;
            match self.starts {
                0 | 1 => write!(f, ", {} restarts", last.attempt)?,
                _ => write!(f, " in {}", duration(self.window))?,
            }
            let limit = memory_limit(last.request.as_deref());
            write!(f, " (exit code {code}{after}{limit})")?;
            return f.write_str(&self.up());
        }
        let is_end = last.reason == ExitReason::Unknown || last.code == 0;
        let keeps = match (last.reason, self.is_over) {
            (ExitReason::Evicted, false) => format!("{name} keeps being evicted"),
            (ExitReason::Evicted, true) => format!("{name} kept being evicted"),
            (_, false) if is_end => format!("{name} keeps ending"),
            (_, true) if is_end => format!("{name} kept ending"),
            (_, false) => format!("{name} keeps crashing"),
            (_, true) => format!("{name} kept crashing"),
        };
        write!(f, "{keeps}: exit code {code}{after}")?;
        // Starts that precede criscope are counted by the restart count.
        match self.starts {
            0 | 1 => write!(f, ", {} restarts", last.attempt)?,
            n => write!(f, ", {n} starts in {}", duration(self.window))?,
        }
        f.write_str(&ended_by(last))?;
        f.write_str(&hint(last))?;
        f.write_str(&self.up())
    }
}

impl CrashLoop<'_> {
    /// How long the container has run now, as a suffix.
    fn up(&self) -> String {
        match self.up_for {
            Some(run) if run >= MIN_RUN_TOLD => {
                format!("; up for {}{}", duration(run), self.delayed())
            }
            _ => String::new(),
        }
    }

    /// What delayed the run that goes on, as a suffix.
    fn delayed(&self) -> String {
        // The downtime has ended, so its sentence does not depend on the time.
        let delay = self.delayed_by.map(|fact| fact.sentence(UnixMicros::EPOCH));
        delay.map_or(String::new(), |fact| format!("; {fact}"))
    }

    fn write_settled(&self, f: &mut Formatter<'_>, run: Duration) -> fmt::Result {
        let (name, last, run_words) = (self.container, self.last, duration(run));
        let (code, after) = (code(last), after(last));
        let all_oom = last.is_out_of_memory() && self.alike == self.exits;
        let (exits, ends) = (self.exits, if all_oom { "OOM kills" } else { "exits" });
        let ago = ago_of(self.ago);
        write!(
            f,
            "{name} has been up for {run_words} after {exits} {ends}, the last {ago} ("
        )?;
        if last.is_out_of_memory() {
            let limit = memory_limit(last.request.as_deref());
            let killed = if all_oom { "" } else { "OOMKilled, " };
            write!(f, "{killed}exit code {code}{after}{limit}")?;
        } else {
            write!(f, "exit code {code}{after}{}{}", ended_by(last), hint(last))?;
        }
        write!(f, "){}", self.delayed())
    }
}

/// How long a container has run that has left a loop, as a suffix.
pub(super) fn settled(run: Option<Duration>) -> String {
    run.map_or(String::new(), |run| {
        format!("; up for {} since", duration(run))
    })
}
