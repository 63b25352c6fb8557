use super::view::Episode;
pub(super) fn headline(episode: &Episode, _now: u64) -> String {
    episode.kind.clone()
}
pub(super) fn of_pod(episodes: &[Episode], _now: u64) -> String {
    episodes[0].headline.clone()
}
