//! The protocol between the daemon and a shim: length-prefixed protobuf messages over a unix stream socket.
//!
//! A frame is four bytes of length (little endian, of the rest) and an [`Envelope`], which holds a number and one of
//! [`Request`], [`Answer`] or [`Event`]. The first message of each side is a [`Hello`], because an upgraded or downgraded
//! daemon meets shims of other versions. Unknown fields are ignored, an unknown request is answered with
//! [`UNIMPLEMENTED`], an unknown event is counted by the daemon. A connection carries requests, answers and events; after
//! [`Request::Attach`] is answered, it carries the standard streams of one process.

pub mod fuzz;
mod messages;
mod statistics;

use std::fmt;

use prost::Message;

pub use self::messages::{
    Answer, Attach, Create, Empty, Event, Exec, Exit, Failure, Hello, Kill, Oom, PidNamespace,
    Process, Request, Resize, Runtime, Shutdown, State, Stdio, Target, TaskShim, Update, Verb,
};
pub use self::statistics::{Metrics, Stats};

/// The newest protocol version that this program supports.
pub const VERSION: u32 = 2;

/// The oldest protocol version that this program supports.
pub const OLDEST: u32 = 2;

/// Maximum length of a frame, in bytes. A longer one ends the connection.
pub const MAX_FRAME: usize = 1 << 20;

/// Maximum length of a piece of a standard stream in one frame, in bytes.
pub const MAX_CHUNK: usize = 16 << 10;

/// [`Failure::kind`]: invalid in this state: the process already exists, is not started, or is still running.
pub const PRECONDITION: u32 = 1;
/// [`Failure::kind`]: no such container or exec, or it has exited.
pub const NOT_FOUND: u32 = 2;
/// [`Failure::kind`]: the OCI runtime failed.
pub const RUNTIME: u32 = 3;
/// [`Failure::kind`]: the OCI runtime timed out.
pub const TIMEOUT: u32 = 4;
/// [`Failure::kind`]: a system call failed.
pub const SYSTEM: u32 = 5;
/// [`Failure::kind`]: the shim does not know this request.
pub const UNIMPLEMENTED: u32 = 6;
/// [`Failure::kind`]: the two sides have no version in common.
pub const INCOMPATIBLE: u32 = 7;

/// A malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed frame")
    }
}

impl std::error::Error for Malformed {}

/// Why the message of an envelope cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The kind is unknown: it was sent by a newer program.
    Unknown,
    /// The message is malformed.
    Malformed,
}

/// The contents of every frame, so that a message that cannot be decoded can still be answered.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Envelope {
    /// The number of a request, repeated by its answer; 0 for events.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub message: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AnyRequest {
    #[prost(
        oneof = "Request",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17"
    )]
    kind: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AnyAnswer {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5")]
    kind: Option<Answer>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AnyEvent {
    #[prost(oneof = "Event", tags = "1, 2, 3, 4, 5")]
    kind: Option<Event>,
}

/// A message of a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The answer to the request of this number, which is never 0.
    Answer(u64, Result<Answer, Unread>),
    /// An event.
    Event(Result<Event, Unread>),
}

impl Hello {
    /// Returns the hello of this program.
    pub fn own() -> Self {
        Self {
            version: VERSION,
            oldest: OLDEST,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Returns whether two sides have a version in common.
    pub fn fits(&self, other: &Self) -> bool {
        self.version >= other.oldest && other.version >= self.oldest
    }
}

/// Appends one frame.
pub fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Returns the length of the frame at the start of `bytes`, including its prefix; `None` if the prefix is incomplete.
///
/// # Errors
/// If the frame is longer than [`MAX_FRAME`].
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > MAX_FRAME {
        return Err(Malformed);
    }
    Ok(Some(len + 4))
}

fn enclose(number: u64, message: Vec<u8>, out: &mut Vec<u8>) {
    let envelope = Envelope { number, message };
    frame(out, |out| out.extend_from_slice(&envelope.encode_to_vec()));
}

fn open(frame: &[u8]) -> Result<Envelope, Malformed> {
    Envelope::decode(frame).map_err(|_| Malformed)
}

/// Appends a request with its number.
pub fn encode_request(number: u64, request: &Request, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    request.encode(&mut message);
    enclose(number, message, out);
}

/// Decodes a numbered request from a frame without its length.
///
/// # Errors
/// If the frame is not an envelope, so that even its number is unknown.
pub fn decode_request(frame: &[u8]) -> Result<(u64, Result<Request, Unread>), Malformed> {
    let Envelope { number, message } = open(frame)?;
    let request = AnyRequest::decode(&*message).map_err(|_| Unread::Malformed);
    Ok((
        number,
        request.and_then(|any| any.kind.ok_or(Unread::Unknown)),
    ))
}

/// Appends an answer; number 0 is for events.
pub fn encode_answer(number: u64, answer: &Answer, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    answer.encode(&mut message);
    enclose(number, message, out);
}

/// Appends an event.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    event.encode(&mut message);
    enclose(0, message, out);
}

/// Decodes a message of a shim from a frame without its length.
///
/// # Errors
/// If the frame is not an envelope.
pub fn decode_incoming(frame: &[u8]) -> Result<Incoming, Malformed> {
    let Envelope { number, message } = open(frame)?;
    Ok(match number {
        0 => {
            let event = AnyEvent::decode(&*message).map_err(|_| Unread::Malformed);
            Incoming::Event(event.and_then(|any| any.kind.ok_or(Unread::Unknown)))
        }
        number => {
            let answer = AnyAnswer::decode(&*message).map_err(|_| Unread::Malformed);
            Incoming::Answer(
                number,
                answer.and_then(|any| any.kind.ok_or(Unread::Unknown)),
            )
        }
    })
}

/// Kinds of frames on an attached connection. The byte is followed by data.
pub mod stream {
    /// Stdin; its end if there is no data.
    pub const STDIN: u8 = 0;
    /// Stdout; its end if there is no data.
    pub const STDOUT: u8 = 1;
    /// Stderr; its end if there is no data.
    pub const STDERR: u8 = 2;
}

/// Appends a piece of a stream.
pub fn encode_chunk(kind: u8, data: &[u8], out: &mut Vec<u8>) {
    frame(out, |out| {
        out.push(kind);
        out.extend_from_slice(data);
    });
}

#[cfg(test)]
mod tests;
