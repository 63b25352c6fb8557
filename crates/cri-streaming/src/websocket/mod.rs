//! The server's side of WebSocket (RFC 6455): no extensions; messages are passed on in pieces as they arrive.
//!
//! Implemented here because the existing crates assemble a whole message before they return it (32 MiB of memory for each
//! session that sends one), queue control frames behind data, and bring their own hash, random generator and parser.

mod decode;
mod frame;
mod handshake;
mod read;
mod write;

pub use self::decode::{WebSocketDecoder, WebSocketEvent};
pub use self::frame::WebSocketViolation;
pub(crate) use self::frame::{opcode, put_head, unmask};
pub(super) use self::handshake::accept_key;
pub(super) use self::read::WebSocketReader;
pub(super) use self::write::{ControlQueue, FrameSender, binary, start, text};

/// The close code for a protocol violation by the client.
pub(super) const PROTOCOL_ERROR: u16 = 1002;
/// The close code of a server that shuts down.
pub(super) const GOING_AWAY: u16 = 1001;
