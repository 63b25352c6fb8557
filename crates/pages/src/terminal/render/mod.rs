//! Draws stories and calls as text for a terminal or a pipe. Text from elsewhere is first made visible, in ASCII if the
//! locale requires it, and only then measured, truncated and coloured.

pub mod calls;
pub mod explain;
pub mod pods;
mod sessions;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::terminal::{self, WaterfallStyle};
use criscope_cri::visible::{visible, visible_ascii};

/// Minimum width.
const MIN_WIDTH: usize = 60;

/// Colours and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextStyle {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

impl TextStyle {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Red => "\x1b[31m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Blue => "\x1b[34m",
            Self::Magenta => "\x1b[35m",
            Self::Cyan => "\x1b[36m",
        }
    }
}

/// Properties of the output.
#[derive(Clone, Copy, Debug)]
struct TerminalOutput {
    look: WaterfallStyle,
}

impl TerminalOutput {
    fn new(look: WaterfallStyle) -> Self {
        Self { look }
    }

    fn width(self) -> usize {
        self.look.width.max(MIN_WIDTH)
    }

    /// Text from elsewhere, safe to write.
    fn text(self, text: &str) -> String {
        if self.look.unicode {
            visible(text)
        } else {
            visible_ascii(text)
        }
    }

    /// The same, truncated at its end to at most this many columns.
    fn cut(self, text: &str, columns: usize) -> String {
        let text = self.text(text);
        if text.chars().count() <= columns {
            return text;
        }
        let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
        format!("{kept}{}", self.pick("…", "~"))
    }

    /// The same, truncated at its beginning, for images, which differ at their end.
    fn cut_front(self, text: &str, columns: usize) -> String {
        let text = self.text(text);
        let length = text.chars().count();
        if length <= columns {
            return text;
        }
        let kept: String = text.chars().skip(length + 1 - columns.max(1)).collect();
        format!("{}{kept}", self.pick("…", "~"))
    }

    /// The same, truncated in its middle; the end keeps a column more than the begin.
    fn cut_middle(self, text: &str, columns: usize) -> String {
        let text = self.text(text);
        let length = text.chars().count();
        if length <= columns {
            return text;
        }
        let kept = columns.saturating_sub(1);
        let begin: String = text.chars().take(kept / 2).collect();
        let end: String = text.chars().skip(length - (kept - kept / 2)).collect();
        format!("{begin}{}{end}", self.pick("…", "~"))
    }

    fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.look.unicode { unicode } else { ascii }
    }

    fn ink(self, ink: TextStyle, text: &str) -> String {
        if self.look.colour && !text.is_empty() {
            format!("{}{text}\x1b[0m", ink.code())
        } else {
            text.to_owned()
        }
    }

    /// Text from elsewhere, wrapped at this many columns.
    fn wrapped(self, text: &str, columns: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in self.text(text).split_whitespace() {
            for piece in pieces(word, columns.max(1)) {
                let Some(line) = lines.last_mut() else { break };
                let length = line.chars().count();
                if length > 0 && length + 1 + piece.chars().count() > columns {
                    lines.push(piece);
                } else {
                    if length > 0 {
                        line.push(' ');
                    }
                    line.push_str(&piece);
                }
            }
        }
        lines
    }

    /// The same in at most this many lines, the last of them truncated.
    fn wrapped_to(self, text: &str, columns: usize, lines: usize) -> Vec<String> {
        let mut wrapped = self.wrapped(text, columns);
        if wrapped.len() > lines.max(1) {
            let rest = wrapped.split_off(lines.max(1) - 1).join(" ");
            wrapped.push(self.cut(&rest, columns));
        }
        wrapped
    }

    /// Own words separated by commas, wrapped at this many columns; words are not broken.
    fn flowing(self, words: &[String], columns: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for (n, word) in words.iter().enumerate() {
            let comma = if n + 1 < words.len() { "," } else { "" };
            let word = format!("{}{comma}", self.text(word));
            let Some(line) = lines.last_mut() else { break };
            let length = line.chars().count();
            if length == 0 {
                line.push_str(&word);
            } else if length + 1 + word.chars().count() <= columns {
                line.push(' ');
                line.push_str(&word);
            } else {
                lines.push(word);
            }
        }
        lines.iter().map(|line| self.cut(line, columns)).collect()
    }

    /// A bar, positioned in `room` columns that represent `total` milliseconds.
    fn bar(self, (at, took): (f64, f64), total: f64, room: usize) -> String {
        terminal::bar(
            (duration_from_ms(at), duration_from_ms(took)),
            duration_from_ms(total),
            room,
            self.look.unicode,
        )
    }
}

/// A word in pieces no longer than a line.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let letters: Vec<_> = word.chars().collect();
    letters
        .chunks(columns)
        .map(|piece| piece.iter().collect())
        .collect()
}

/// A duration in milliseconds; zero for anything but a number.
fn duration_from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64((ms / 1e3).max(0.0)).unwrap_or_default()
}

/// Pads to a width counted in characters.
fn pad(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// A next step without the backticks around its commands, which would be copied with them.
fn without_code_marks(step: &str) -> String {
    step.replace('`', "")
}

/// `NAMESPACE/NAME`.
fn pod(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// An image with a shortened digest.
fn image(image: &str) -> String {
    match image.split_once("@sha256:") {
        Some((name, digest)) => {
            let end = digest.floor_char_boundary(12);
            format!("{name}@sha256:{}", &digest[..end])
        }
        None => image.to_owned(),
    }
}
