//! The client end, as in a kubelet, an API server or crictl: the upgrade, the frames of both transports, and commands over
//! either.
//!
//! [`UpgradeRequest`] upgrades a connection to SPDY or WebSocket. [`SpdySender`] and [`SpdyReceiver`], [`WebSocketSender`]
//! and [`WebSocketReceiver`] are its halves, frame by frame; both receivers return whole frames, which is sufficient for a
//! client, while a server must bound its memory. [`run_command`] opens the streams of an exec or attach session over either
//! transport.

mod command;
mod http;
mod spdy;
mod websocket;

pub use self::command::{CommandEvent, CommandInput, CommandOutput, run_command};
pub use self::http::{ResponseHead, UpgradeError, UpgradeRequest, exchange, split_url};
pub use self::spdy::{SpdyFrame, SpdyReceiver, SpdySender};
pub use self::websocket::{
    BINARY, CLOSE, PING, PONG, TEXT, WebSocketFrame, WebSocketReceiver, WebSocketSender,
    encode_frame,
};
pub use crate::remotecommand::CommandResult;
