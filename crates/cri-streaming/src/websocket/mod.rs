//! WebSocket (RFC 6455), the server's side of it: no extensions, no client, messages as they come in pieces of any size.
//!
//! Written here and not taken from a crate, because what is needed is small and those there are do something else: they
//! put a whole message together before they give it out (32 MiB of memory for each session that sends one), put control
//! frames behind data, and bring a hash, a random generator and a parser of their own.

mod decode;
mod frame;
mod handshake;
mod read;
mod write;

pub use self::decode::{Decoder, Event};
pub use self::frame::Violation;
pub(crate) use self::frame::unmask;
pub(super) use self::handshake::accept_key;
pub(super) use self::read::Reader;
pub(super) use self::write::{Control, Frames, binary, start, text};
