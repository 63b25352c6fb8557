//! Draws the story of a pod: the headline, then the calls as a waterfall.

mod listed;
mod rows;

use std::fmt::Write as _;

use self::rows::{gap, kubelet, lines, tries, wait};

use super::{TerminalOutput, TextStyle, pad, pod, sessions, without_code_marks};
use crate::terminal::WaterfallStyle;
use crate::view::{
    BACK_OFF_PHASE, EpisodeState, EpisodeView, PodState, PodStory, WaterfallAxis, WaterfallItem,
    crash_loops, exit_reason_in_words, waterfall_items,
};
use criscope_cri::units;
use criscope_cri::units::times::UnixMicros;

/// Most hidden episodes that the last line names.
const MAX_EPISODES_NAMED: usize = 3;

/// Width of a time column.
const TIME_WIDTH: usize = 8;

/// Draws the story, with all episodes or only the one that matters.
pub fn story(story: &PodStory, all: bool, look: WaterfallStyle) -> String {
    let paper = TerminalOutput::new(look);
    let shown: Vec<_> = match &story.listed {
        _ if all => story.episodes.iter().collect(),
        // The episodes are those of earlier pods of this name.
        Some(_) => Vec::new(),
        None => matters(story).into_iter().collect(),
    };
    let loops = crash_loops(shown.iter().copied());
    let mut text = String::new();
    let headline = &story.headline;
    // Never wrapped or truncated: scripts and people copy the first line.
    let _ = writeln!(
        text,
        "{}",
        paper.ink(TextStyle::Bold, &paper.text(headline))
    );
    if let Some(raw) = &story.raw_message {
        let raw = paper.text(&raw.to_string());
        let _ = writeln!(text, "{}", paper.ink(TextStyle::Dim, &raw));
    }
    if let Some(next) = &story.next {
        let _ = writeln!(text, "next: {}", paper.text(&without_code_marks(next)));
    }
    listed::write(&mut text, story, paper);
    for (episode, crash_loop) in shown.iter().zip(loops) {
        text.push('\n');
        let headlines = [crash_loop, Some(&*episode.headline)];
        for line in headlines
            .into_iter()
            .flatten()
            .filter(|line| line != headline)
        {
            let _ = writeln!(text, "{}\n", paper.ink(TextStyle::Bold, &paper.text(line)));
        }
        write_episode(&mut text, story, episode, paper);
    }
    others(&mut text, story, &shown, paper);
    sessions::write(&mut text, story, all, paper);
    text
}

/// The episode with the headline of the story: the newest of those, or the newest of all.
fn matters(story: &PodStory) -> Option<&EpisodeView> {
    let mut newest_first = story.episodes.iter().rev();
    newest_first
        .clone()
        .find(|episode| episode.says(&story.headline))
        .or_else(|| newest_first.next())
}

fn write_episode(
    text: &mut String,
    story: &PodStory,
    episode: &EpisodeView,
    paper: TerminalOutput,
) {
    about(text, story, episode, paper);
    phases(text, episode, paper);
    waterfall(text, episode, paper);
    exits(text, story.now_unix_us, episode, paper);
}

/// Pod, kind, times, and the ids for other tools.
fn about(text: &mut String, story: &PodStory, episode: &EpisodeView, paper: TerminalOutput) {
    let (ink_of_state, word) = word(episode);
    let mut how = vec![what(episode), word.to_owned()];
    if episode.failures > 0 {
        how.push(format!("{} failed", calls(episode.failures)));
    }
    if episode.retries > 0 {
        how.push(format!("{} retried", calls(episode.retries)));
    }
    let name = pod(&episode.namespace, &episode.name);
    for (head, line) in [("pod", name), ("what", how.join(", "))] {
        let line = paper.cut(&line, paper.width() - TIME_WIDTH);
        let ink = if head == "pod" {
            TextStyle::Bold
        } else {
            ink_of_state
        };
        let head = paper.ink(TextStyle::Dim, &pad(head, TIME_WIDTH));
        let _ = writeln!(text, "{head}{}", paper.ink(ink, &line));
    }
    let mut when = units::rfc3339(episode.began_unix_us);
    let since = units::since(story.now_unix_us.since(episode.began_unix_us));
    let _ = write!(when, ", {since}");
    let mut facts = vec![
        format!("began   {when}"),
        format!(
            "took    {}",
            units::duration(episode.lasting_ms(story.now_unix_us))
        ),
        format!("uid     {}", episode.uid),
        format!("trace   {}", episode.trace_id),
    ];
    if let Some(sandbox) = &episode.sandbox_id {
        facts.push(format!("sandbox {sandbox}"));
    }
    if !episode.handler.is_empty() {
        facts.push(format!("handler {}", episode.handler));
    }
    for fact in facts {
        let fact = paper.cut(&fact, paper.width());
        let _ = writeln!(text, "{}", paper.ink(TextStyle::Dim, &fact));
    }
}

fn calls(n: u32) -> String {
    match n {
        1 => "1 call".to_owned(),
        n => format!("{n} calls"),
    }
}

fn what(episode: &EpisodeView) -> String {
    match (episode.kind.as_str(), &episode.container) {
        ("restart", Some(container)) if episode.attempt == 0 => {
            format!("first start of container {container}")
        }
        ("restart", Some(container)) => {
            format!("restart {} of container {container}", episode.attempt)
        }
        ("start", _) if episode.attempt > 0 => format!("start, sandbox {}", episode.attempt),
        (kind, _) => kind.to_owned(),
    }
}

/// The phases as numbers, the longest first.
fn phases(text: &mut String, episode: &EpisodeView, paper: TerminalOutput) {
    let mut phases = episode.shown_phases();
    phases.retain(|phase| phase.ms > 0.0);
    phases.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    if phases.is_empty() {
        return;
    }
    let words: Vec<_> = phases
        .iter()
        .map(|phase| {
            let share = phase.ms / episode.duration_ms.max(0.001) * 100.0;
            let name = match phase.phase.as_str() {
                "outside_cri" => "outside CRI".to_owned(),
                BACK_OFF_PHASE => "kubelet back-off".to_owned(),
                name => name.replace('_', " "),
            };
            format!("{name} {} ({share:.0} %)", units::duration(phase.ms))
        })
        .collect();
    for (n, line) in paper
        .flowing(&words, paper.width() - TIME_WIDTH)
        .into_iter()
        .enumerate()
    {
        let head = if n == 0 { "phases" } else { "" };
        let _ = writeln!(
            text,
            "{}{line}",
            paper.ink(TextStyle::Dim, &pad(head, TIME_WIDTH))
        );
    }
}

fn waterfall(text: &mut String, episode: &EpisodeView, paper: TerminalOutput) {
    let rows = waterfall_items(episode)
        .into_iter()
        .flat_map(|item| match item {
            WaterfallItem::Wait(shown) => vec![wait(shown)],
            WaterfallItem::Gap(shown) => vec![gap(&shown)],
            WaterfallItem::Kubelet(shown) => vec![kubelet(shown)],
            WaterfallItem::Call(shown) => lines(shown),
            WaterfallItem::Tries(shown) => tries(&shown).into_iter().collect(),
        });
    let lines: Vec<_> = rows.collect();
    if lines.is_empty() {
        return;
    }
    let axis = WaterfallAxis::from_episode(episode);
    let labels = lines
        .iter()
        .map(|line| line.label(usize::MAX, paper).chars().count());
    let times = 2 * (TIME_WIDTH + 2);
    // Bars get the width that labels leave, but at least half.
    let most = (paper.width() - times) / 2;
    let label = labels.max().unwrap_or(0).min(most);
    let room = paper.width() - times - label - 2;

    let head = format!(
        "{:>TIME_WIDTH$}  {:>TIME_WIDTH$}  {}",
        "at",
        "took",
        marks(&axis, room)
    );
    let _ = writeln!(text, "\n{}", paper.ink(TextStyle::Dim, &head));
    for line in &lines {
        let bar = pad(&line.bar(&axis, room, paper), room);
        let name = line.label(label, paper);
        let name = if line.detail {
            paper.ink(TextStyle::Dim, &name)
        } else {
            name
        };
        let _ = writeln!(
            text,
            "{:>TIME_WIDTH$}  {:>TIME_WIDTH$}  {}  {name}",
            units::duration(line.at),
            units::duration(line.took),
            paper.ink(line.ink, &bar),
        );
        let remarks = line
            .remarks
            .iter()
            .map(|remark| (TextStyle::Yellow, remark));
        for (ink, note) in line
            .error
            .iter()
            .map(|error| (TextStyle::Red, error))
            .chain(remarks)
        {
            for note in paper.wrapped(note, paper.width() - times) {
                let _ = writeln!(text, "{:times$}{}", "", paper.ink(ink, &note));
            }
        }
    }
    if episode.calls_forgotten > 0 {
        let _ = writeln!(
            text,
            "and {} more that were not kept",
            calls(episode.calls_forgotten)
        );
    }
}

/// The numbers above the bars: the ends, and where the last try begins if the axis is compressed.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
fn marks(axis: &WaterfallAxis, room: usize) -> String {
    let end = units::duration(axis.end_ms());
    let mut line = "0".to_owned();
    if let Some(begin) = axis.last_try_ms() {
        let mark = units::duration(begin);
        let column = (axis.place(begin) * room as f64).round() as usize;
        // A number that would touch its neighbours is left out.
        if column > 1 && column + mark.len() + 1 < room.saturating_sub(end.len()) {
            line = format!("{line:<column$}{mark}");
        }
    }
    let rest = room.saturating_sub(line.chars().count());
    format!("{line}{end:>rest$}")
}

fn exits(text: &mut String, now: UnixMicros, episode: &EpisodeView, paper: TerminalOutput) {
    if !episode.exits.is_empty() {
        text.push('\n');
    }
    for exit in &episode.exits {
        let ran = units::duration(exit.ran_ms);
        let line = format!(
            "container {} (restart {}) ended {} after {ran}: {}, exit code {}{}",
            exit.container,
            exit.attempt,
            units::since(now.since(exit.at_unix_us)),
            exit_reason_in_words(&exit.reason),
            exit.code,
            if exit.ordered { ", as asked" } else { "" }
        );
        let ink = match exit.reason.as_str() {
            _ if exit.ordered => TextStyle::Dim,
            "completed" => TextStyle::Green,
            _ => TextStyle::Red,
        };
        for line in paper.wrapped(&line, paper.width()) {
            let _ = writeln!(text, "{}", paper.ink(ink, &line));
        }
    }
}

/// Names the other episodes.
fn others(text: &mut String, story: &PodStory, shown: &[&EpisodeView], paper: TerminalOutput) {
    let more = story.episodes.len() - shown.len();
    if more == 0 {
        return;
    }
    let words: Vec<_> = story
        .episodes
        .iter()
        .rev()
        .filter(|episode| !shown.iter().any(|shown| std::ptr::eq(*episode, *shown)))
        .take(MAX_EPISODES_NAMED)
        .map(|episode| {
            let since = units::since(story.now_unix_us.since(episode.began_unix_us));
            format!("{} ({}, {since})", what(episode), word(episode).1)
        })
        .collect();
    let line = format!(
        "{more} more {}: {}{}. --all shows them.",
        if more == 1 { "episode" } else { "episodes" },
        words.join(", "),
        match more.saturating_sub(MAX_EPISODES_NAMED) {
            0 => String::new(),
            unnamed => format!(", and {unnamed} before"),
        }
    );
    text.push('\n');
    for line in paper.wrapped(&line, paper.width()) {
        let _ = writeln!(text, "{}", paper.ink(TextStyle::Dim, &line));
    }
}

/// Colour and word of a state.
fn word(episode: &EpisodeView) -> (TextStyle, &'static str) {
    if episode.state == EpisodeState::Cancelled {
        return (TextStyle::Dim, "cancelled");
    }
    let state = episode.pod_state();
    let ink = match state {
        PodState::CrashLoop | PodState::Stopped => TextStyle::Yellow,
        PodState::Ok | PodState::Completed | PodState::Gone => TextStyle::Green,
        PodState::Failing | PodState::Failed => TextStyle::Red,
        PodState::Starting | PodState::Stopping => TextStyle::Blue,
    };
    match state {
        PodState::Starting | PodState::Stopping => (ink, "in progress"),
        PodState::Gone => (ink, "ok"),
        state => (ink, state.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;
    use crate::view::RawMessage;

    #[test]
    fn the_raw_message_and_the_next_step_follow_the_headline() {
        let story_of_pod = PodStory {
            raw_message: Some(RawMessage {
                from: "containerd".to_owned(),
                text: "NOT_FOUND no\u{1b}such".to_owned(),
            }),
            next: Some("check it: `skopeo list-tags docker://r.example/app`".to_owned()),
            ..examples::story(examples::failed_image())
        };
        let look = WaterfallStyle {
            width: 80,
            colour: false,
            unicode: true,
        };
        let text = story(&story_of_pod, false, look);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(&*story_of_pod.headline));
        let raw = lines.next().unwrap_or_default();
        assert!(
            raw.starts_with("containerd: NOT_FOUND no") && !raw.contains('\u{1b}'),
            "{raw}"
        );
        let next = "next: check it: skopeo list-tags docker://r.example/app";
        assert_eq!(lines.next(), Some(next));
    }
}
