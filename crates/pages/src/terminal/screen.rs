//! The alternate screen of a terminal, left in any case when the command ends, and the loop that redraws it.

use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::TerminationSignals;
use crate::commands::PageCommandError;
use crate::source::PageError;
use criscope_cri::visible::visible;

/// Time between two screens, unless the command has a flag for it.
pub const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Alternate screen, no cursor (xterm's private modes 1049 and 25).
const ENTER_ALTERNATE_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE_ALTERNATE_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

/// The alternate screen. Dropping it restores the normal screen, and so does a panic, before its message.
#[derive(Debug)]
struct AlternateScreen {
    taken: Arc<AtomicBool>,
}

impl AlternateScreen {
    /// Switches to it.
    ///
    /// # Errors
    /// If writing fails.
    fn take() -> io::Result<Self> {
        let taken = Arc::new(AtomicBool::new(true));
        let before = panic::take_hook();
        let screen = Self {
            taken: Arc::clone(&taken),
        };
        panic::set_hook(Box::new(move |info| {
            give_back(&taken);
            before(info);
        }));
        write(ENTER_ALTERNATE_SCREEN)?;
        Ok(screen)
    }

    /// Redraws the screen. No line is cleared before it is written, which avoids flicker.
    ///
    /// # Errors
    /// If writing fails.
    fn draw(&self, text: &str) -> io::Result<()> {
        write(&frame(text))
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        give_back(&self.taken);
    }
}

fn give_back(taken: &AtomicBool) {
    if taken.swap(false, Ordering::Relaxed) {
        // The terminal may be gone.
        let _ = write(LEAVE_ALTERNATE_SCREEN);
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

/// Redraws until interrupted; `draw` is given the number of lines, or none for the first time, whose text is not shown. If
/// criscope stops meanwhile, waits for its return.
///
/// # Errors
/// If the first time fails, or writing.
pub async fn watch(
    draw: impl AsyncFn(Option<usize>) -> Result<String, PageError>,
    period: Duration,
) -> Result<(), PageCommandError> {
    let mut ends = TerminationSignals::new()?;
    // An error at the start is printed on the normal screen.
    draw(None).await?;
    let screen = AlternateScreen::take()?;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let drawn = async {
            ticks.tick().await;
            let text = match draw(Some(height())).await {
                Ok(text) => text,
                Err(error) => format!("{}\n\nretrying\n", visible(&error.to_string())),
            };
            screen.draw(&text)
        };
        tokio::select! {
            drawn = drawn => drawn?,
            () = ends.any() => return Ok(()),
        }
    }
}

fn height() -> usize {
    terminal_size::terminal_size_of(io::stdout()).map_or(24, |(_, height)| usize::from(height.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_nothing_of_the_one_before() {
        assert_eq!(frame("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }
}
