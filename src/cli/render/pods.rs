//! Draws recent starts as a table.

use std::fmt::Write as _;

use super::{Ink, Paper, pad, pod};
use crate::lifecycle::view::{Episode, Recent, State, crash_loops};
use crate::smoke::waterfall::Look;
use crate::units;

/// Width of the bar.
const BAR: usize = 24;

/// Maximum width of a name on a terminal.
const NAME: usize = 48;

/// Phase, letter, word and colour, in the order of the bar.
const PHASES: [(&str, char, &str, Ink); 7] = [
    ("sandbox", 's', "sandbox", Ink::Blue),
    ("network", 'N', "network", Ink::Yellow),
    ("image_pull", 'P', "image pull", Ink::Magenta),
    ("container_create", 'c', "create", Ink::Cyan),
    ("container_start", 't', "start", Ink::Green),
    ("init_container", 'i', "init container", Ink::Yellow),
    ("outside_cri", '.', "outside CRI", Ink::Dim),
];

/// Draws the table. Bars and truncation only with `terminal`.
pub(crate) fn table(recent: &Recent, look: Look, terminal: bool) -> String {
    let paper = Paper::new(look);
    let names: Vec<_> = recent
        .episodes
        .iter()
        .map(|it| paper.text(&name(it)))
        .collect();
    let widest = names.iter().map(|it| it.chars().count()).max().unwrap_or(0);
    let widest = if terminal { widest.min(NAME) } else { widest }.max(4);
    let states = recent.episodes.iter().map(|it| word(it).1.len());
    let states = states.fold(6, usize::max);
    let has_bar = terminal && paper.width() >= widest + states + BAR + 39;

    let mut text = String::new();
    let bar_head = if has_bar {
        pad("PHASES", BAR + 2)
    } else {
        String::new()
    };
    let head = format!(
        "{}  {}  {:>8}  {bar_head}{:<6}  WHERE THE TIME WENT",
        pad("POD", widest),
        pad("STATE", states),
        "TOOK",
        "AGE"
    );
    let _ = writeln!(text, "{}", paper.ink(Ink::Dim, &head));
    let loops = crash_loops(&recent.episodes);
    for ((episode, name), crash_loop) in recent.episodes.iter().zip(&names).zip(loops) {
        let name = if terminal {
            paper.cut(name, widest)
        } else {
            name.clone()
        };
        let bar = match has_bar {
            true => format!("{}  ", phases(episode, paper)),
            false => String::new(),
        };
        let used = widest + states + 24 + if has_bar { BAR + 2 } else { 0 };
        let room = paper.width().saturating_sub(used).max(20);
        let why = match crash_loop {
            Some(crash_loop) => format!("{crash_loop}; {}", episode.headline),
            None => episode.headline.clone(),
        };
        let why = match terminal {
            true => paper.cut(&why, room),
            false => paper.text(&why),
        };
        let (ink, word) = word(episode);
        let _ = writeln!(
            text,
            "{}  {}  {:>8}  {bar}{:<6}  {why}",
            pad(&name, widest),
            paper.ink(ink, &pad(word, states)),
            units::duration(episode.duration_ms),
            units::ago(recent.now_unix_us, episode.began_unix_us),
        );
    }
    if has_bar && !names.is_empty() {
        let _ = writeln!(text, "\n{}", legend(paper));
    }
    text
}

/// The pod, with container or sandbox attempt unless it is the first start.
fn name(episode: &Episode) -> String {
    let name = pod(&episode.namespace, &episode.name);
    match (episode.kind.as_str(), &episode.container) {
        ("restart", Some(container)) => format!("{name} ({container} #{})", episode.attempt),
        ("start", _) if episode.attempt > 0 => format!("{name} (sandbox #{})", episode.attempt),
        ("start", _) => name,
        (kind, _) => format!("{name} ({kind})"),
    }
}

/// Colour and word of a state.
fn word(episode: &Episode) -> (Ink, &'static str) {
    match episode.state {
        _ if episode.is_undone() => (Ink::Yellow, "crash loop"),
        State::Ok => (Ink::Green, "ok"),
        State::Failed => (Ink::Red, "failed"),
        State::Open => (Ink::Blue, "open"),
    }
}

/// The phases in sequence, a letter per cell. The full bar is the whole start, whose duration is in the column beside it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
fn phases(episode: &Episode, paper: Paper) -> String {
    let whole: f64 = episode.phases.iter().map(|phase| phase.ms).sum();
    let cell = |ms: f64| ((ms / whole.max(0.001) * BAR as f64).round() as usize).min(BAR);
    let (mut text, mut at, mut filled) = (String::new(), 0.0, 0);
    for phase in &episode.phases {
        at += phase.ms;
        let to = cell(at);
        let known = PHASES.iter().find(|(name, ..)| *name == phase.phase);
        let (letter, ink) = known.map_or(('-', Ink::Dim), |(_, letter, _, ink)| (*letter, *ink));
        let cells = letter.to_string().repeat(to.saturating_sub(filled));
        text.push_str(&paper.ink(ink, &cells));
        filled = filled.max(to);
    }
    text.push_str(&" ".repeat(BAR - filled));
    text
}

fn legend(paper: Paper) -> String {
    let words = PHASES
        .map(|(_, letter, word, ink)| format!("{} {word}", paper.ink(ink, &letter.to_string())));
    words.join("   ")
}
