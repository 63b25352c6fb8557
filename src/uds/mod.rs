//! Connections of every listener: the stream of a unix socket, and the limit on how many are open at once.

pub mod limit;
pub mod stream;

pub use stream::Stream;
