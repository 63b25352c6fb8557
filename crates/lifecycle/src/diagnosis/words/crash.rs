//! Sentences on crash loops.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::exit::{after, code, ended_by, hint};
use super::request::memory_limit;
use super::{duration, times};
use crate::diagnosis::crash::CrashLoop;
use criscope_cri::subject::ExitReason;

impl Display for CrashLoop<'_> {
    /// `app was OOMKilled 5 times in 1m 47s (exit code 137 after 1.7 s, limit 24 MiB)`,
    /// `app keeps crashing: exit code 1 after 0.2 s, 5 starts in 2 min`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
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
            return f.write_str(&settled(self.settled_for));
        }
        let keeps = if self.is_over { "kept" } else { "keeps" };
        let ending = match last.reason {
            ExitReason::Evicted => "being evicted",
            ExitReason::Unknown => "ending",
            _ if last.code == 0 => "ending",
            _ => "crashing",
        };
        write!(f, "{name} {keeps} {ending}: exit code {code}{after}")?;
        // Starts that precede criscope are counted by the restart count.
        match self.starts {
            0 | 1 => write!(f, ", {} restarts", last.attempt)?,
            n => write!(f, ", {n} starts in {}", duration(self.window))?,
        }
        f.write_str(&ended_by(last))?;
        f.write_str(&hint(last))?;
        f.write_str(&settled(self.settled_for))
    }
}

/// How long a container has run that has left a loop, as a suffix.
pub(super) fn settled(run: Option<Duration>) -> String {
    run.map_or(String::new(), |run| {
        format!("; up for {} since", duration(run))
    })
}
