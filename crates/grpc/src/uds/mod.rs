//! Connections of every listener: the stream of a unix socket, filters of streams, and the limit on concurrent connections.

pub mod filter;
pub mod limit;
pub mod listener;
pub mod stream;

pub use filter::{FilteredStream, StreamFilter};
pub use listener::SocketListener;
pub use stream::SocketStream;
