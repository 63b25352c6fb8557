//! Flow control and header limits of HTTP/2, the same for callers and backends.

/// Room for data of one stream that nobody has read yet, in bytes. A large list then needs few window updates.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// The same for a whole connection: several streams with slow readers leave room for the others. It also bounds how much
/// memory one caller can make the proxy hold.
pub const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest header list, in bytes. The usual 16 KiB refuse error details that gRPC peers accept.
pub const MAX_HEADER_LIST: u32 = 1 << 20;
