//! Containers that come up and end again and again.

use crate::story::view::{Episode, Exit};
use crate::units::duration;

/// How long after its last end a container that is up again counts as one that keeps ending, in microseconds: twice the
/// kubelet's longest back-off.
const RECENT: u64 = 10 * 60 * 1_000_000;

/// When a container started well, in microseconds since 1970.
fn starts(episodes: &[&Episode], name: &str) -> Vec<u64> {
    let mut starts = Vec::new();
    for episode in episodes {
        for call in &episode.calls {
            if call.method == "StartContainer"
                && call.outcome == "ok"
                && call.container.as_deref() == Some(name)
            {
                let at = call.offset_ms + call.duration_ms;
                starts.push(episode.began_unix_us + (at * 1000.0) as u64);
            }
        }
    }
    starts.sort_unstable();
    starts
}

/// Whether one end is like the other, as a person sees it.
fn keeps_ending(exits: &[&Exit]) -> bool {
    let failed = exits.iter().filter(|e| e.code != 0).count();
    failed >= 2 || exits.len() >= 3
}

/// The sentence on the container that keeps ending, and when it ended last.
pub(super) fn sentence(episodes: &[&Episode], now: u64) -> Option<(String, u64)> {
    let mut names: Vec<&str> = Vec::new();
    for exit in episodes.iter().flat_map(|e| &e.exits) {
        if !names.contains(&&*exit.container) {
            names.push(&exit.container);
        }
    }
    let found = names
        .into_iter()
        .filter_map(|name| of_container(episodes, name, now));
    found.max_by_key(|(_, at)| *at)
}

fn of_container(episodes: &[&Episode], name: &str, now: u64) -> Option<(String, u64)> {
    let mut exits: Vec<_> = episodes
        .iter()
        .flat_map(|e| &e.exits)
        .filter(|e| e.container == name)
        .collect();
    exits.sort_by_key(|exit| exit.at_unix_us);
    let last = *exits.last()?;
    let starts = starts(episodes, name);
    let is_down = starts.last().is_none_or(|at| *at <= last.at_unix_us);
    let is_recent = now.saturating_sub(last.at_unix_us) < RECENT;
    if !keeps_ending(&exits) || !(is_down || is_recent) {
        return None;
    }
    let mut text = format!("container {name} keeps {}", how(last, true));
    // Starts from before our time are known by the number of the newest.
    let began = starts.first().copied().unwrap_or(last.at_unix_us);
    let ended = starts.last().copied().unwrap_or(began).max(last.at_unix_us);
    match starts.len() {
        0 | 1 => text += &format!(", {} restarts", last.attempt),
        n => {
            let window = ended.saturating_sub(began) as f64 / 1000.0;
            text += &format!(", {n} starts in {}", duration(window));
        }
    }
    Some((text, last.at_unix_us))
}

/// How a container ended.
pub(super) fn how(exit: &Exit, keeps: bool) -> String {
    let ran = duration(exit.ran_ms);
    match (&*exit.reason, keeps) {
        ("oom_killed", true) => {
            format!(
                "being killed for lack of memory: exit code {} after {ran}",
                exit.code
            )
        }
        ("oom_killed", false) => {
            format!(
                "was killed for lack of memory after {ran} (exit code {})",
                exit.code
            )
        }
        (_, true) => format!("ending: exit code {} after {ran}", exit.code),
        (_, false) => format!("ended with exit code {} after {ran}", exit.code),
    }
}

/// What became of the containers of an episode, if it is worth a word: one that failed.
pub(super) fn afterwards(episode: &Episode) -> Option<String> {
    let failed = episode.exits.iter().rev().find(|exit| exit.code != 0)?;
    // Who is stopped is killed, and a container that ran for long did its work.
    let soon = failed.ran_ms < 60_000.0 || failed.reason == "oom_killed";
    let stops = episode.kind == "stop";
    (soon && !stops).then(|| format!("container {} {}", failed.container, how(failed, false)))
}
