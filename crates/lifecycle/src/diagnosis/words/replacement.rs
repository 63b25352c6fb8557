//! Sentences on sandboxes that replace others.

use std::fmt::{self, Display, Formatter};

use super::exit::{LOST_SHIM, ended_before, sandbox_death};
use super::{duration, times};
use crate::diagnosis::before::SandboxReplacement;
use crate::diagnosis::reasons::{ClosedList, UnusableSandbox, one_of, words};
use criscope_cri::units::times::UnixMicros;

impl Display for SandboxReplacement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_reason(f)?;
        match self.exit_before.filter(|_| !self.has_lost_shim) {
            Some((exit, before)) => f.write_str(&ended_before(exit, before)),
            None => Ok(()),
        }
    }
}

impl SandboxReplacement<'_> {
    fn write_reason(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let attempt = self.attempt;
        match self.times {
            n @ 2.. => {
                let keeps = if self.is_over {
                    "was replaced"
                } else {
                    "keeps being replaced:"
                };
                let (n, window) = (times(n), duration(self.window));
                write!(f, "the sandbox {keeps} {n} in {window}")?;
                match self.death {
                    Some(death) => write!(f, "; the last one died: {}", sandbox_death(death)),
                    None => Ok(()),
                }
            }
            _ if let Some(peer) = self.stopped_by => {
                let by = peer.in_words();
                write!(f, "the sandbox was stopped by {by} and replaced")?;
                match attempt {
                    0 => Ok(()),
                    attempt => write!(f, " (attempt {attempt})"),
                }
            }
            _ => {
                write!(f, "the sandbox was replaced (attempt {attempt}): ")?;
                if let Some(restart) = self.downtime.filter(|fact| fact.booted().is_some()) {
                    return f.write_str(&restart.sentence(UnixMicros::EPOCH));
                }
                f.write_str("the one before ")?;
                match (self.death, self.downtime) {
                    (Some(death), _) => write!(f, "died: {}", sandbox_death(death)),
                    // The downtime has ended, so its sentence does not depend on the time.
                    (None, Some(fact)) => {
                        write!(
                            f,
                            "was not usable after {}",
                            fact.sentence(UnixMicros::EPOCH)
                        )
                    }
                    (None, None) if self.has_lost_shim => {
                        write!(f, "died: {LOST_SHIM}")
                    }
                    (None, None) => f.write_str(&one_of(&words(UnusableSandbox::ALL))),
                }
            }
        }
    }
}
