//! HTTP/2 settings of both sides, with the reason for each.

use hyper::server;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Room for one stream's data that nobody has read yet, in bytes. A large list then needs few window updates.
const STREAM_WINDOW: u32 = 1 << 20;

/// The same for a whole connection: some streams with slow readers leave room for the others. It also bounds what
/// one caller can make us hold, and is the budget of h2's guard against floods of tiny frames.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest header block, in bytes. hyper's 16 KiB refuses error details that gRPC peers accept.
const MAX_HEADER_LIST: u32 = 1 << 20;

/// Calls that were reset before they were read. A kubelet that restarts drops many at once.
const MAX_PENDING_RESETS: usize = 1024;

/// Answers to callers.
pub fn server() -> server::conn::http2::Builder<TokioExecutor> {
    let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // An upstream's answer has no date, so ours has none.
        .auto_date_header(false)
        // The kubelet opens a stream per call and has no limit of its own; hyper's 200 would queue calls unseen.
        .max_concurrent_streams(None)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

/// Calls to an upstream.
pub fn client() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // The runtime is trusted, and its events are small and may wait for a consumer: no guard against such.
        .data_frame_budget(usize::MAX);
    builder
}
