//! Subscribers to closed episodes.

use std::fmt::Debug;

use super::view;
use criscope_cri::call::episode::Ids;

/// Receives each episode when it is closed. Called by the aggregator on the side thread; must not block.
pub trait EpisodeSubscriber: Debug + Send + Sync {
    /// `episode` is closed; `ids` are its trace and root span.
    fn closed(&self, episode: &view::EpisodeView, ids: &Ids);

    /// `episode` has failed for a while and may do so for long. It is closed later, with [`EpisodeSubscriber::continued`].
    fn failing(&self, _episode: &view::EpisodeView, _ids: &Ids) {}

    /// `episode` is closed, and was reported before: as failing, or as closed. `from` is the part that was reported, in
    /// the unit of [`view::EpisodeView::duration_ms`].
    fn continued(&self, episode: &view::EpisodeView, ids: &Ids, _from: f64) {
        self.closed(episode, ids);
    }

    /// Returns whether the trace of a closed episode is exported, so that an exemplar may name it.
    fn keeps(&self, _episode: &view::EpisodeView, _ids: &Ids) -> bool {
        false
    }
}
