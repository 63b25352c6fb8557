//! Sentences on the part of the node in an episode.

use std::fmt::{self, Display, Formatter};

use super::exit::ago_of;
use super::{duration, subject, times};
use crate::diagnosis::node::{EpisodeWait, FactAt};

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
                write!(f, "{} has taken {took} so far", subject(call))
            }
            Self::Retry { call, tries, ago } => {
                let ago = ago_of(*ago);
                match tries {
                    1 => write!(f, "{} failed {ago}", subject(call)),
                    n => write!(f, "{} failed {}, the last {ago}", subject(call), times(*n)),
                }
            }
            Self::NextCall { after, ago } => {
                let ago = ago_of(*ago);
                write!(f, "no call since {} ended {ago}", subject(after))
            }
        }
    }
}
