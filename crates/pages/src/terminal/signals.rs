//! The signals that end a command.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

/// SIGINT, SIGTERM and SIGHUP.
#[cfg(unix)]
#[derive(Debug)]
pub struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// Ctrl-C, Ctrl-Break and the end of the console.
#[cfg(windows)]
#[derive(Debug)]
pub struct TerminationSignals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    hang_up: CtrlClose,
}

impl TerminationSignals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// If they cannot be handled.
    #[cfg(unix)]
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Takes the signals over.
    ///
    /// # Errors
    /// If they cannot be handled.
    #[cfg(windows)]
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            terminate: ctrl_break()?,
            hang_up: ctrl_close()?,
        })
    }

    /// Returns with the next of them.
    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
