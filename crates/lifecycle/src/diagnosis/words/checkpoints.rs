//! Sentences on checkpoints of running pods.

use std::fmt::{self, Display, Formatter};

use super::duration;
use super::exit::ago_of;
use crate::diagnosis::checkpoints::RecentCheckpoint;
use crate::episode_store::CheckpointState;

impl Display for RecentCheckpoint<'_> {
    /// `the kubelet checkpointed the pod 2m 1s ago and froze it for up to 4.2 s`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let record = self.record;
        let (by, ago) = (record.peer.in_words(), ago_of(self.ago));
        let target = record.container.as_deref().unwrap_or("the pod");
        let took = duration(record.ended.since(record.began));
        match record.state {
            CheckpointState::InFlight => {
                write!(
                    f,
                    "{by} freezes {target} for a checkpoint, which has taken {took}"
                )
            }
            CheckpointState::Made => {
                write!(
                    f,
                    "{by} froze {target} for up to {took} for a checkpoint {ago}"
                )
            }
            CheckpointState::Failed => write!(
                f,
                "{by} froze {target} for up to {took} for a checkpoint that failed {ago}"
            ),
        }
    }
}
