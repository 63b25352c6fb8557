//! The alternate screen of a terminal, left in any case when the command ends.

use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alternate screen, no cursor (xterm's private modes 1049 and 25).
const TAKE: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const GIVE_BACK: &str = "\x1b[?25h\x1b[?1049l";

/// The alternate screen. Dropping it restores the normal screen, and so does a panic, before its message.
#[derive(Debug)]
pub(super) struct Screen {
    taken: Arc<AtomicBool>,
}

impl Screen {
    /// Switches to it.
    ///
    /// # Errors
    /// If writing fails.
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

    /// Redraws the screen. No line is cleared before it is written, which avoids flicker.
    ///
    /// # Errors
    /// If writing fails.
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
        // The terminal may be gone.
        let _ = write(GIVE_BACK);
    }
}

/// From the upper left corner, clearing the rest of each line and of the screen.
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
