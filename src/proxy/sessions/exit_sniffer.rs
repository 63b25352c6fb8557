//! Reads the result of an exec or attach session from the bytes that an upstream sends to the client: whether it was sent
//! before the client disconnected, and the exit code. All other content is skipped, and none is kept.
//!
//! Parsing stops at the first unexpected byte. Forwarding the bytes is another module's work and does not depend on it.

use cri_streaming::client::{BINARY, CLOSE, CommandResult, TEXT};
use cri_streaming::{SessionKind, Transport};

/// Largest part of a result that is kept, in bytes.
const MAX_RESULT: usize = 4 << 10;

/// Types of SPDY control frames (SPDY/3.1, 2.6).
const RST_STREAM: u16 = 3;
const GOAWAY: u16 = 7;
/// The flag of a frame that is the last of its stream.
const FIN: u8 = 1;
/// Clients open the error stream, which carries the result, first; their ids begin with 1.
const RESULT_STREAM: u32 = 1;

/// The error channel, which carries the result.
const RESULT_CHANNEL: u8 = 3;

/// The payload after a frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramePayload {
    /// Irrelevant.
    Skip,
    /// The result; `last` if the stream ends with it.
    Result { last: bool },
    /// The stream that is reset, and the status code.
    Reset,
    /// A WebSocket message: its channel, then the data.
    Message,
}

/// Reads the result of a session from the bytes for its client.
#[derive(Debug)]
pub(super) struct ExitSniffer {
    transport: Option<Transport>,
    /// The incomplete head of a frame, or a small payload.
    head: Vec<u8>,
    /// Remaining bytes of the payload.
    left: u64,
    payload: FramePayload,
    ended: bool,
    result: Vec<u8>,
}

/// The part of a session's result that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExitReport {
    /// True if the upstream sent the result completely, or closed the session.
    pub(super) complete: bool,
    /// The exit code.
    pub(super) exit_code: Option<i32>,
    /// True if the upstream reported a failure.
    pub(super) failed: bool,
}

impl ExitSniffer {
    pub(super) fn new(kind: SessionKind, transport: Transport) -> Self {
        let has_result = matches!(kind, SessionKind::Exec | SessionKind::Attach);
        Self {
            transport: Some(transport).filter(|t| has_result && *t != Transport::Tls),
            head: Vec::new(),
            left: 0,
            payload: FramePayload::Skip,
            ended: false,
            result: Vec::new(),
        }
    }

    /// Parses the next bytes.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        while let Some(transport) = self.transport
            && !bytes.is_empty()
        {
            if self.left > 0 {
                let n = bytes
                    .len()
                    .min(usize::try_from(self.left).unwrap_or(usize::MAX));
                let (now, later) = bytes.split_at(n);
                self.take(now);
                bytes = later;
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            match transport {
                Transport::Spdy => self.spdy(),
                Transport::WebSocket => self.websocket(),
                // TLS is opaque.
                Transport::Tls => return,
            }
        }
    }

    fn begin(&mut self, payload: FramePayload, len: u64) {
        self.head.clear();
        self.payload = payload;
        self.left = len;
        if len == 0 && payload == (FramePayload::Result { last: true }) {
            self.ended = true;
        }
    }

    fn spdy(&mut self) {
        let Some(&[a, b, c, d, flags, x, y, z]) = self.head.first_chunk::<8>() else {
            return;
        };
        let len = u64::from(u32::from_be_bytes([0, x, y, z]));
        let payload = if a & 0x80 == 0 {
            match u32::from_be_bytes([a, b, c, d]) {
                RESULT_STREAM => FramePayload::Result {
                    last: flags & FIN != 0,
                },
                _ => FramePayload::Skip,
            }
        } else {
            match u16::from_be_bytes([c, d]) {
                RST_STREAM if len == 8 => FramePayload::Reset,
                GOAWAY => {
                    self.ended = true;
                    FramePayload::Skip
                }
                _ => FramePayload::Skip,
            }
        };
        self.begin(payload, len);
    }

    fn websocket(&mut self) {
        let &[first, second, ref more @ ..] = &*self.head else {
            return;
        };
        // Frames of a server are not masked.
        if second & 0x80 != 0 {
            self.transport = None;
            return;
        }
        let len = match (second, more) {
            (126, &[a, b]) => u64::from(u16::from_be_bytes([a, b])),
            (127, more) => match more.first_chunk::<8>() {
                Some(len) => u64::from_be_bytes(*len),
                None => return,
            },
            (126, _) => return,
            (len, _) => u64::from(len),
        };
        let payload = match first & 0x0f {
            TEXT | BINARY => FramePayload::Message,
            CLOSE => {
                self.ended = true;
                FramePayload::Skip
            }
            _ => FramePayload::Skip,
        };
        self.begin(payload, len);
    }

    /// Consumes bytes of the payload.
    fn take(&mut self, mut bytes: &[u8]) {
        self.left -= bytes.len() as u64;
        if self.payload == FramePayload::Message {
            // A message with only a channel opens the session.
            let channel = bytes[0];
            bytes = &bytes[1..];
            let more = !bytes.is_empty() || self.left > 0;
            self.payload = match channel {
                RESULT_CHANNEL if more => {
                    self.ended = true;
                    FramePayload::Result { last: false }
                }
                // Base64, which is not decoded.
                b'3' if more => {
                    self.ended = true;
                    FramePayload::Skip
                }
                _ => FramePayload::Skip,
            };
        }
        match self.payload {
            FramePayload::Result { last } => {
                let room = MAX_RESULT - self.result.len();
                self.result
                    .extend_from_slice(&bytes[..bytes.len().min(room)]);
                self.ended |= last && self.left == 0;
            }
            FramePayload::Reset => {
                self.head.extend_from_slice(bytes);
                if self.left == 0 {
                    self.ended |= self.head.starts_with(&RESULT_STREAM.to_be_bytes());
                    self.head.clear();
                }
            }
            FramePayload::Skip | FramePayload::Message => {}
        }
    }

    /// Bytes in memory.
    #[cfg(any(test, fuzzing))]
    pub(super) fn holds(&self) -> usize {
        self.head.len() + self.result.len()
    }

    /// The result for a session of this kind.
    pub(super) fn report(&self, kind: SessionKind) -> ExitReport {
        let complete = self.ended;
        if !complete || self.result.is_empty() {
            return ExitReport {
                complete,
                ..ExitReport::default()
            };
        }
        let result = CommandResult::parse(&self.result);
        let exit_code = match result {
            CommandResult::Exited(code) if kind == SessionKind::Exec => Some(code),
            _ => None,
        };
        ExitReport {
            complete,
            failed: result == CommandResult::Failed,
            exit_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUCCESS: &[u8] = br#"{"metadata":{},"status":"Success"}"#;
    const SEVEN: &[u8] = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;

    fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let len = u32::try_from(bytes.len()).expect("small").to_be_bytes();
        [&stream.to_be_bytes()[..], &[flags], &len[1..], bytes].concat()
    }

    fn control(kind: u16, bytes: &[u8]) -> Vec<u8> {
        let mut frame = data(0x8003_0000 | u32::from(kind), 0, bytes);
        frame[0] |= 0x80;
        frame
    }

    fn frame(opcode: u8, bytes: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode];
        match u8::try_from(bytes.len()) {
            Ok(len) if len < 126 => frame.push(len),
            _ => {
                frame.push(126);
                let len = u16::try_from(bytes.len()).expect("small");
                frame.extend_from_slice(&len.to_be_bytes());
            }
        }
        [&frame[..], bytes].concat()
    }

    /// The result of these bytes, in pieces of any size.
    fn report(kind: SessionKind, transport: Transport, bytes: &[u8]) -> ExitReport {
        let whole = {
            let mut sniffer = ExitSniffer::new(kind, transport);
            sniffer.see(bytes);
            sniffer.report(kind)
        };
        for size in [1, 2, 3, 5, 9] {
            let mut sniffer = ExitSniffer::new(kind, transport);
            bytes.chunks(size).for_each(|piece| sniffer.see(piece));
            assert_eq!(sniffer.report(kind), whole, "pieces of {size}");
        }
        whole
    }

    #[test]
    fn the_result_of_a_command_over_spdy() {
        let spdy =
            |frames: &[Vec<u8>]| report(SessionKind::Exec, Transport::Spdy, &frames.concat());
        let out = data(5, 0, &[0x80; 300]);
        let reply = control(2, &[0, 0, 0, 1, 9, 9]);
        let quiet = spdy(&[reply.clone(), out.clone(), control(6, &[0, 0, 0, 1])]);
        assert_eq!(quiet, ExitReport::default());
        let done = spdy(&[reply, out, data(5, FIN, b""), data(1, FIN, SEVEN)]);
        assert_eq!((done.complete, done.exit_code), (true, Some(7)));
        let in_two = spdy(&[data(1, 0, &SUCCESS[..9]), data(1, 0, &SUCCESS[9..])]);
        assert!(!in_two.complete, "more may come");
        for end in [
            data(1, FIN, b""),
            control(RST_STREAM, &[0, 0, 0, 1, 0, 0, 0, 5]),
            control(GOAWAY, &[0; 8]),
        ] {
            let done = spdy(&[data(1, 0, SUCCESS), end]);
            assert_eq!((done.complete, done.exit_code), (true, Some(0)));
        }
        let other = spdy(&[control(RST_STREAM, &[0, 0, 0, 3, 0, 0, 0, 5])]);
        assert!(!other.complete);
    }

    #[test]
    fn the_result_of_a_command_over_websocket() {
        let websocket =
            |frames: &[Vec<u8>]| report(SessionKind::Exec, Transport::WebSocket, &frames.concat());
        let ready = frame(BINARY, &[RESULT_CHANNEL]);
        let out = frame(BINARY, &[1; 300]);
        let quiet = websocket(&[ready, out.clone(), frame(10, b"pong")]);
        assert_eq!(quiet, ExitReport::default());
        let result = [&[RESULT_CHANNEL], SEVEN].concat();
        let done = websocket(&[out, frame(BINARY, &result)]);
        assert_eq!((done.complete, done.exit_code), (true, Some(7)));
        assert!(websocket(&[frame(TEXT, b"3e30=")]).complete);
        let done = websocket(&[frame(CLOSE, &[3, 232])]);
        assert_eq!((done.complete, done.exit_code), (true, None));
        assert!(!websocket(&[vec![0x82, 0x85, 3, 3, 3, 3, 3, 3, 3]]).complete);
    }

    #[test]
    fn only_commands_have_exit_codes() {
        let failure = br#"{"status":"Failure","reason":"InternalError","code":500}"#;
        let end = report(SessionKind::Exec, Transport::Spdy, &data(1, FIN, failure));
        assert_eq!(
            (end.complete, end.failed, end.exit_code),
            (true, true, None)
        );
        let end = report(SessionKind::Attach, Transport::Spdy, &data(1, FIN, SUCCESS));
        assert_eq!(
            (end.complete, end.failed, end.exit_code),
            (true, false, None)
        );
        let end = report(
            SessionKind::PortForward,
            Transport::Spdy,
            &data(1, FIN, SUCCESS),
        );
        assert_eq!(end, ExitReport::default());
        let large = data(1, FIN, &[b'x'; 10_000]);
        assert!(report(SessionKind::Exec, Transport::Spdy, &large).complete);
    }
}
