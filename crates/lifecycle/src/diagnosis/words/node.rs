//! Sentences on the part of the node in an episode.

use std::fmt::{self, Formatter};

use super::{duration, subject, times};
use crate::diagnosis::node::EpisodeWait;
use crate::node::NodeFact;
use criscope_cri::units::since;
use criscope_cri::units::times::UnixMicros;

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
            let took = duration(call.took());
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
