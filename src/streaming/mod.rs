//! Streaming: the bytes of exec, attach and port-forward, beside the calls of the CRI.

pub mod spdy;
