//! Sentences on the part of the node in an episode.

use std::fmt::{self, Display, Formatter};

use super::{subject, times};
use crate::diagnosis::cause::NodeConditions;
use crate::diagnosis::node::EpisodeWait;
use crate::node::NodeFact;
use criscope_cri::units::times::{UnixMicros, millis};
use criscope_cri::units::{duration, since};

/// Writes a fact, and the part of the episode that waits for its end.
pub(super) fn blocks(
    f: &mut Formatter<'_>,
    fact: &NodeFact,
    waits: &EpisodeWait<'_>,
    now: UnixMicros,
) -> fmt::Result {
    write!(f, "{}; ", fact.sentence(now))?;
    match waits {
        EpisodeWait::EndOfCall(call) => {
            let took = duration(call.duration_ms());
            write!(f, "{} has taken {took}", subject(call))
        }
        EpisodeWait::Retry(call, tries) => {
            let ago = since(now.since(call.ended_at()));
            let tries = times(*tries);
            write!(f, "{} failed {tries}, the last {ago}", subject(call))
        }
        EpisodeWait::NextCall(call) => {
            let ago = since(now.since(call.ended_at()));
            write!(f, "no call since {} ended {ago}", subject(call))
        }
    }
}

impl Display for NodeConditions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(down) = self.unseen_downtime {
            let down = down.sentence(self.now);
            write!(f, "; what came before is not known: {down}")?;
        }
        if let Some(starts) = self.concurrent_starts {
            write!(f, "; {starts} pods started at the same time")?;
        }
        if let Some(short) = &self.short_of {
            write!(
                f,
                "; the node was short of {}: some task waited for it {:.0} % of {}",
                short.resource,
                short.share * 100.0,
                duration(millis(short.over))
            )?;
        }
        match self.full_disk {
            Some(full) => write!(f, "; {}", full.sentence(self.now)),
            None => Ok(()),
        }
    }
}
