//! What a terminal shows, and how wide, in which colours and letters.

pub mod format;
pub mod render;
pub mod screen;
mod signals;

use std::io::{self, IsTerminal};
use std::time::Duration;

pub use self::signals::TerminationSignals;

/// Style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaterfallStyle {
    /// Total columns. At least 60 are used.
    pub width: usize,
    /// ANSI colours.
    pub colour: bool,
    /// Block characters; plain ASCII otherwise.
    pub unicode: bool,
}

/// The style of tables and waterfalls on standard output. Without a known width it is `default`.
pub fn look(default: usize) -> WaterfallStyle {
    WaterfallStyle {
        width: columns().unwrap_or(default),
        colour: colour(&io::stdout()),
        unicode: unicode(),
    }
}

/// The width of standard output: the terminal's width, or `COLUMNS` (POSIX), which watch(1) and others set for a pipe.
/// `None` if there is neither.
pub fn columns() -> Option<usize> {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map(|(width, _)| usize::from(width.0))
        .or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
        .filter(|columns| *columns > 0)
}

/// Returns whether to use colours: only on a terminal, and not with a non-empty NO_COLOR (no-color.org).
pub fn colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        // Consoles of Windows interpret escape sequences on request only; other systems have nothing to enable.
        && anstyle_query::windows::enable_ansi_colors().unwrap_or(true)
}

/// Returns whether the locale has block characters. Consoles of Windows always have them.
fn unicode() -> bool {
    if cfg!(windows) {
        return io::stdout().is_terminal();
    }
    // The first that is set and not empty counts (POSIX, "Internationalization variables").
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

/// A bar with this start and length, in `room` columns that represent `total`: full cells where it covers at least one,
/// a thin mark otherwise.
pub fn bar(
    (start, took): (Duration, Duration),
    total: Duration,
    room: usize,
    unicode: bool,
) -> String {
    let (block, thin) = if unicode { ('█', '▏') } else { ('#', '|') };
    let from = cell(start, total, room);
    let to = cell(start + took, total, room);
    let mut bar = " ".repeat(from.min(room - 1));
    if to > from {
        bar.extend(std::iter::repeat_n(block, to - from));
    } else {
        bar.push(thin);
    }
    bar
}

fn cell(at: Duration, total: Duration, room: usize) -> usize {
    let share = at.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
    // Rounded, so that the end of one step and the start of the next are in the same cell.
    ((share * room as f64).round() as usize).min(room)
}
