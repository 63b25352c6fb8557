//! Exec, attach and port-forward with real connections and test clients, in front of a target without containers.

mod broken_off;
mod bulk;
pub(crate) mod client;
mod forward;
mod held_back;
mod hostile;
mod http;
mod inbox;
mod limits;
mod open;
mod relay;
mod relay_tls;
mod remote;
mod server;
pub(crate) mod spdy;
mod target;
pub(crate) mod tls;
mod upstream;
mod websocket;
