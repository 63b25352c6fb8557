//! HTTP/2 flow control and header limits, the same for callers and backends.

/// Flow control window of one stream, in bytes. Large enough that a list of 1,000 containers, about 1 MB, needs one window update at
/// most: they are sent when half of it is used.
pub const STREAM_WINDOW: u32 = 2 << 20;

/// Flow control window of a connection: several streams with slow readers leave space for others. It also bounds the memory
/// that one caller can occupy.
pub const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest header list, in bytes. The usual 16 KiB would reject error details that gRPC peers accept.
pub const MAX_HEADER_LIST: u32 = 1 << 20;
