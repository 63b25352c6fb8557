//! HTTP/2 (RFC 9113) for the two ends of the request path: made for gRPC over unix sockets.
//!
//! ```text
//!            bytes                      frames                    streams
//!   socket ---------> io::Input ----> receive ----------> core ------------> Incoming (body), heads, trailers
//!   socket <--------- io::Output <-------------------- core <--------------- Call, Outgoing
//!            one write                 hpack, frame           heads, data, trailers
//! ```
//!
//! One task per connection reads a batch of frames with one system call, takes them all in, and only then lets the
//! calls of the connection go on: a request nearly always came whole. What they send is appended to one buffer (large
//! data by reference), which leaves with one system call when the task has no more to do.
//!
//! - [`server::Connection`] carries its calls itself (`calls`): no task and no allocation per call.
//! - [`client::Sender`] opens a stream from whatever task the call is in; the bytes leave with the connection's next turn.
//! - `core` is what the task and the holders of streams share, behind a lock that nobody waits for: all of it happens on
//!   one thread. It is never held across a poll of someone else's code.
//! - `hpack` keeps headers as they are used, so that a repeated path is neither parsed nor copied.
//!
//! A peer is not trusted to follow the rules: whatever it can make us keep has a bound, and is named below or where it
//! is kept. Room is given back only for data that somebody took, so a reader that stalls holds back its own stream.

mod blocks;
mod calls;
pub mod client;
mod control;
mod core;
mod error;
mod frame;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod head;
mod hpack;
mod incoming;
mod io;
mod receive;
mod send;
pub mod server;
mod stream;
#[cfg(test)]
mod tests;

pub use error::{Error, Reason};
#[cfg(any(test, fuzzing))]
pub use fuzz::fuzz;
pub use incoming::{Incoming, Outgoing};

/// Any error of a service or a body.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Room for one stream's data that nobody has read yet, in bytes. A large list then needs few window updates.
const STREAM_WINDOW: u32 = 1 << 20;

/// The same for a whole connection: some streams with slow readers leave room for the others. It also bounds what
/// one caller can make us hold.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest header list, in bytes. The 16 KiB that are usual refuse error details that gRPC peers accept.
const MAX_HEADER_LIST: u32 = 1 << 20;
