//! Subscribers to closed episodes.

use std::fmt::Debug;

use super::view;
use crate::call::episode::Ids;

/// Receives each episode once, when it is closed. Called by the aggregator on the side thread; must not block.
pub trait EpisodeSubscriber: Debug + Send + Sync {
    /// `episode` is closed; `ids` are its trace and root span.
    fn closed(&self, episode: &view::Episode, ids: &Ids);

    /// Returns whether the trace of a closed episode is exported, so that an exemplar may name it.
    fn keeps(&self, _episode: &view::Episode, _ids: &Ids) -> bool {
        false
    }
}
