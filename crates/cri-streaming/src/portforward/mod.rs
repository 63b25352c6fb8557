//! Port-forward: TCP connections into a pod, many over one connection of the client.

mod client_writer;
mod copy;
mod dial;
mod pairs;
mod pod_writer;
mod spdy;
mod tunnel;
mod websocket;

pub(super) use self::spdy::serve as serve_spdy;
pub(super) use self::tunnel::WebSocketTunnel;
pub(super) use self::websocket::{MAX_PORTS, serve as serve_websocket};
