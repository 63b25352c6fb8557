//! Sentences on the part of the node in an episode.

use std::fmt::{self, Display, Formatter};

use super::{duration, subject, times};
use crate::diagnosis::node::{EpisodeWait, FactAt};
use criscope_cri::units::since;

impl Display for FactAt<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact.sentence(self.now))
    }
}

impl Display for EpisodeWait<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndOfCall(call) => {
                let took = duration(call.took());
                write!(f, "{} has taken {took}", subject(call))
            }
            Self::Retry { call, tries, ago } => {
                let (tries, ago) = (times(*tries), since(*ago));
                write!(f, "{} failed {tries}, the last {ago}", subject(call))
            }
            Self::NextCall { after, ago } => {
                let ago = since(*ago);
                write!(f, "no call since {} ended {ago}", subject(after))
            }
        }
    }
}
