//! The progress of a command that takes a while, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::cri::visible::visible;
use crate::units;

/// Before, a rate says nothing.
const ESTIMATED_AFTER: Duration = Duration::from_secs(1);

/// A progress line that is overwritten, if standard error is a terminal.
pub(super) struct ProgressLine {
    name: String,
    on: bool,
    last: String,
    /// The current step, and its start.
    began: Option<(String, Instant)>,
}

impl ProgressLine {
    /// `name` is the subject of the progress line, such as an archive.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: visible(name).to_string(),
            on: io::stderr().is_terminal(),
            last: String::new(),
            began: None,
        }
    }

    /// Draws the line; `all` is 0 if unknown.
    pub(super) fn show(&mut self, verb: &str, done: u64, all: u64) {
        if !self.on {
            return;
        }
        let began = self.began.take_if(|(doing, _)| doing == verb);
        let (doing, began) = began.unwrap_or_else(|| (verb.to_owned(), Instant::now()));
        let line = line(&self.name, verb, (done, all), began.elapsed());
        self.began = Some((doing, began));
        if line != self.last {
            // Progress is optional.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
            self.last = line;
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if !self.last.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.last.clear();
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn line(name: &str, verb: &str, (done, all): (u64, u64), elapsed: Duration) -> String {
    let mut line = match (done, all) {
        (0, 0) => return format!("{verb} {name}"),
        (done, 0) => format!("{verb} {name}: {}", units::bytes(done)),
        (done, all) => format!(
            "{verb} {name}: {} of {}",
            units::bytes(done),
            units::bytes(all)
        ),
    };
    if done > 0 && elapsed >= ESTIMATED_AFTER {
        let rate = done as f64 / elapsed.as_secs_f64();
        line += &format!(", {}/s", units::bytes(rate as u64));
        if all > done {
            let left = (all - done) as f64 / rate;
            line += &format!(", {} left", units::duration(left * 1e3));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_in_bytes() {
        let early = Duration::from_millis(10);
        assert_eq!(line("a.tar", "loading", (0, 0), early), "loading a.tar");
        assert_eq!(
            line("-", "reading", (3 << 20, 0), early),
            "reading -: 3.0 MiB"
        );
        assert_eq!(
            line("a", "loading", (1 << 19, 5 << 20), early),
            "loading a: 512.0 KiB of 5.0 MiB"
        );
        let later = Duration::from_secs(4);
        assert_eq!(
            line("-", "reading", (4 << 20, 0), later),
            "reading -: 4.0 MiB, 1.0 MiB/s"
        );
        assert_eq!(
            line("a", "loading", (4 << 20, 24 << 20), later),
            "loading a: 4.0 MiB of 24.0 MiB, 1.0 MiB/s, 20.0 s left"
        );
    }
}
