//! Connections of every listener: the stream of a unix socket, and the limit on concurrent connections.

pub mod limit;
pub mod stream;

pub use stream::SocketStream;
