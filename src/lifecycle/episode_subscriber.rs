//! What hears of an episode when it is over.

use std::fmt::Debug;

use super::view;
use crate::call::episode::Ids;

/// Hears of each episode once, when it is over. Called by the aggregator on the side thread; must not block.
pub trait EpisodeSubscriber: Debug + Send + Sync {
    /// `episode` is over, with all calls that are remembered of it; `ids` are its trace and root span.
    fn closed(&self, episode: &view::Episode, ids: &Ids);

    /// Whether the trace of an episode that is over is exported, so that an exemplar may lead to it.
    fn keeps(&self, _episode: &view::Episode, _ids: &Ids) -> bool {
        false
    }
}
