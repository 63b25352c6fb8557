//! The transfer of a step: the server that was asked, and how many bytes have come. It changes while the step runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The transfer of a running step.
#[derive(Debug, Default)]
pub struct Transfer(Mutex<TransferState>);

#[derive(Debug, Default)]
struct TransferState {
    server: Option<Arc<str>>,
    kept: u64,
    bytes: u64,
    expected: u64,
    /// The newest request or the last byte.
    moved: Option<Instant>,
    is_answered: bool,
    longest_pause: Duration,
    /// Time since `moved` when the step ended.
    idle_at_end: Option<Duration>,
}

/// The transfer of a step at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferReading {
    /// The server that was asked last: host and port.
    pub server: Arc<str>,
    /// Bytes that an earlier pull has left.
    pub kept: u64,
    /// Bytes that have arrived, with those.
    pub bytes: u64,
    /// Bytes in all; 0 if the number is not known.
    pub expected: u64,
    /// Time since the last byte, or since the server was asked.
    pub idle: Duration,
    /// The longest time without a byte.
    pub longest_pause: Duration,
    /// Whether a byte has come since the server was asked.
    pub is_answered: bool,
}

impl TransferState {
    /// Notes that a request was sent, or a byte arrived.
    fn moved(&mut self) {
        let now = Instant::now();
        let pause = self.moved.map(|moved| now.duration_since(moved));
        self.longest_pause = self.longest_pause.max(pause.unwrap_or_default());
        self.moved = Some(now);
    }
}

impl Transfer {
    /// A request goes to this server.
    pub fn asked(&self, server: &str) {
        let mut state = self.state();
        state.moved();
        state.is_answered = false;
        if state.server.as_deref() != Some(server) {
            state.server = Some(server.into());
        }
    }

    /// Bytes have arrived.
    pub fn received(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes += bytes;
        if state.server.is_none() {
            // What an earlier pull has left comes before a request.
            state.kept += bytes;
        } else if bytes > 0 {
            state.moved();
            state.is_answered = true;
        }
    }

    /// This number of bytes will arrive in all.
    pub fn expects(&self, bytes: u64) {
        self.state().expected = bytes;
    }

    /// The step has ended: time does not go on for it.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.idle_at_end = Some(state.moved.map(|at| at.elapsed()).unwrap_or_default());
    }

    /// How far it is; `None` before the first request.
    pub fn read(&self) -> Option<TransferReading> {
        let state = self.state();
        let (server, moved) = (state.server.as_ref()?, state.moved?);
        let idle = state.idle_at_end.unwrap_or_else(|| moved.elapsed());
        let bytes = match state.expected {
            0 => state.bytes,
            // A server may send the begin of a layer again.
            expected => state.bytes.min(expected),
        };
        Some(TransferReading {
            server: Arc::clone(server),
            kept: state.kept.min(bytes),
            bytes,
            expected: state.expected,
            idle,
            longest_pause: state.longest_pause.max(idle),
            is_answered: state.is_answered,
        })
    }

    fn state(&self) -> MutexGuard<'_, TransferState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_says_whom_it_waits_for_and_what_has_come() {
        let transfer = Transfer::default();
        transfer.expects(10);
        transfer.received(2);
        assert_eq!(transfer.read(), None, "no server yet");
        transfer.asked("r.example:5000");
        let asked = transfer.read().expect("a server");
        assert_eq!(
            (&*asked.server, asked.is_answered),
            ("r.example:5000", false)
        );
        transfer.received(20);
        let received = transfer.read().expect("a server");
        assert_eq!(
            (received.kept, received.bytes, received.expected),
            (2, 10, 10)
        );
        assert!(received.is_answered);
        transfer.asked("mirror.example");
        let again = transfer.read().expect("a server");
        assert_eq!(
            (&*again.server, again.is_answered),
            ("mirror.example", false)
        );
    }

    #[test]
    fn the_time_without_a_byte_stands_still_after_the_end() {
        let transfer = Transfer::default();
        transfer.asked("r.example");
        transfer.end();
        let first = transfer.read();
        assert!(first.is_some());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(transfer.read(), first);
    }
}
