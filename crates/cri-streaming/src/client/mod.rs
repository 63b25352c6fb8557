//! The client end, as a kubelet, an API server or crictl has it: the upgrade, the frames of both transports, and a command
//! over either.
//!
//! [`UpgradeRequest`] turns a connection into SPDY or WebSocket. [`SpdySender`] and [`SpdyReceiver`], [`WebSocketSender`]
//! and [`WebSocketReceiver`] are the halves of it, frame by frame; both read whole frames, which is what a client needs and
//! a server cannot afford. [`run_command`] opens the streams of an exec or attach session over either transport.

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
