//! Crash loops as lists of episodes show them.

use std::collections::HashSet;

use super::{Episode, State};

impl Episode {
    /// Whether all went well in it, and yet the container that it started keeps ending.
    pub(crate) fn is_undone(&self) -> bool {
        self.state == State::Ok && self.crash_loop.is_some()
    }

    /// Whether this sentence is one on it.
    pub(crate) fn says(&self, sentence: &str) -> bool {
        self.headline == sentence || self.crash_loop.as_deref() == Some(sentence)
    }
}

/// The sentence on the crash loop of each of these episodes, for the first one of each loop only: the others would say
/// the same again.
pub(crate) fn crash_loops<'a>(
    episodes: impl IntoIterator<Item = &'a Episode>,
) -> Vec<Option<&'a str>> {
    let mut told = HashSet::new();
    let first = |episode: &'a Episode| {
        let text = episode.crash_loop.as_deref()?;
        let pod = (&*episode.namespace, &*episode.name, &*episode.uid);
        told.insert((pod, text)).then_some(text)
    };
    episodes.into_iter().map(first).collect()
}
