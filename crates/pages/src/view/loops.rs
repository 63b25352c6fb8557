//! Crash loops in lists of episodes.

use std::collections::HashSet;

use super::{EpisodeState, EpisodeView};

impl EpisodeView {
    /// Returns whether the episode succeeded, and yet its container is in a crash loop.
    pub fn is_undone(&self) -> bool {
        self.state == EpisodeState::Ok && self.crash_loop.is_some()
    }

    /// Returns whether this is its headline or its sentence on a crash loop.
    pub fn says(&self, sentence: &str) -> bool {
        self.headline == sentence || self.crash_loop.as_deref() == Some(sentence)
    }
}

/// The sentence on the crash loop of each of these episodes, for the first one of each loop only, since the others would
/// repeat it.
pub fn crash_loops<'a>(
    episodes: impl IntoIterator<Item = &'a EpisodeView>,
) -> Vec<Option<&'a str>> {
    let mut seen = HashSet::new();
    let first_of_loop = episodes.into_iter().map(|episode| {
        let text = episode.crash_loop.as_deref()?;
        let pod = (&*episode.namespace, &*episode.name, &*episode.uid);
        seen.insert((pod, text)).then_some(text)
    });
    first_of_loop.collect()
}
