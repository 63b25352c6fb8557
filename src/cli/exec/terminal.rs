//! The terminal of the user in raw mode, so that the container's terminal interprets the keys.

use std::io;

use cri_streaming::TerminalSize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// Raw mode of standard input. Dropping it, also by a panic, restores the mode before.
#[derive(Debug)]
pub(super) struct RawTerminalMode {
    before: Termios,
}

impl RawTerminalMode {
    /// Begins raw mode; none if standard input is no terminal.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub(super) fn begin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self { before }))
    }
}

impl Drop for RawTerminalMode {
    fn drop(&mut self) {
        // The terminal may be gone. It is not drained before: a terminal that is held by ^S would keep the command.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The size of the terminal, if standard output or input is one.
pub(super) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin()));
    let size = size
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
    Some(TerminalSize {
        width: size.ws_col,
        height: size.ws_row,
    })
}
