//! One connection: from a daemon that sends requests, or attached to a process.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::net::sockopt::set_socket_send_buffer_size_force;

use super::protocol::{self, Malformed};

/// Unsent output for an attached client, in bytes, above which its process is not read.
const FULL: usize = 64 << 10;

/// Maximum unsent output of any connection, in bytes.
const MAX_WAITING: usize = 2 * protocol::MAX_FRAME;

/// Size of the socket buffer for the last output of a process, in bytes: more than the limit above and its pipes hold.
const LAST_ROOM: usize = 2 * MAX_WAITING;

/// The streams of a process that a connection carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    pub(super) process: u64,
    pub(super) stdin: bool,
    pub(super) out: [bool; 2],
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) stream: UnixStream,
    pub(super) attached: Option<Attached>,
    /// True if hellos were exchanged.
    pub(super) greeted: bool,
    /// Never closed for being slow, because it blocks only its own process.
    pub(super) patient: bool,
    pub(super) gone: bool,
    input: Vec<u8>,
    /// How much of the input was returned as frames.
    taken: usize,
    output: Vec<u8>,
    /// Since when a full buffer has made no progress.
    pub(super) stuck: Option<Instant>,
}

impl Connection {
    pub(super) fn new(number: u64, stream: UnixStream) -> Self {
        Self {
            number,
            stream,
            attached: None,
            greeted: false,
            patient: false,
            gone: false,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            stuck: None,
        }
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= FULL
    }

    /// Appends a frame with `encode` and writes as much as possible.
    pub(super) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.output);
        self.flush();
        self.gone |= self.output.len() > MAX_WAITING;
    }

    pub(super) fn flush(&mut self) {
        let mut done = 0;
        while done < self.output.len() {
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
        self.output.drain(..done);
        if self.output.is_empty() {
            self.output = Vec::new();
        }
        if !self.is_full() || self.patient {
            self.stuck = None;
        } else if done > 0 || self.stuck.is_none() {
            self.stuck = Some(Instant::now());
        }
    }

    /// Leaves unsent and further output to the socket buffer: the kernel keeps it for a slow client even after this end is
    /// closed.
    pub(super) fn make_room(&mut self) {
        // Without the privilege, only what fits the default buffer is kept.
        let _refused = set_socket_send_buffer_size_force(&self.stream, LAST_ROOM);
        self.flush();
    }

    /// Reads once.
    pub(super) fn fill(&mut self, room: &mut [u8]) {
        match self.stream.read(room) {
            Ok(0) => self.gone = true,
            Ok(n) => self.input.extend_from_slice(&room[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.gone = true,
        }
    }

    /// Returns the next complete frame without its length.
    pub(super) fn frame(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let rest = &self.input[self.taken..];
        if let Some(len) = protocol::frame_len(rest)?
            && let Some(frame) = rest.get(4..len)
        {
            self.taken += len;
            return Ok(Some(frame.to_vec()));
        }
        // Once for all frames of a read. Shrinks the buffer to the rest.
        if self.taken > 0 {
            self.input = self.input.split_off(self.taken);
            self.taken = 0;
        }
        Ok(None)
    }
}
