//! A terminal's other screen, taken for as long as a command draws on it and always given back.

use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alternate screen, no cursor (xterm's private modes 1049 and 25).
const TAKE: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const GIVE_BACK: &str = "\x1b[?25h\x1b[?1049l";

/// The other screen. Dropping it brings the first one back, and so does a panic, before it is told.
#[derive(Debug)]
pub(super) struct Screen {
    taken: Arc<AtomicBool>,
}

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn take() -> io::Result<Self> {
        let taken = Arc::new(AtomicBool::new(true));
        let before = panic::take_hook();
        let screen = Self {
            taken: Arc::clone(&taken),
        };
        panic::set_hook(Box::new(move |info| {
            give_back(&taken);
            before(info);
        }));
        write(TAKE)?;
        Ok(screen)
    }

    /// Draws this text in the place of what is there. No line is cleared before it is written, so nothing flickers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn draw(&self, text: &str) -> io::Result<()> {
        write(&frame(text))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.taken);
    }
}

fn give_back(taken: &AtomicBool) {
    if taken.swap(false, Ordering::Relaxed) {
        // Nobody is left to tell if the terminal is gone.
        let _ = write(GIVE_BACK);
    }
}

/// From the upper left corner, the rest of each line and of the screen cleared.
fn frame(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_nothing_of_the_one_before() {
        assert_eq!(frame("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }
}
