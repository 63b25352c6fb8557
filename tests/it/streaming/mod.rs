//! Exec, attach and port-forward with real connections, by clients written here, in front of a target that needs no
//! container.

mod broken_off;
mod bulk;
pub(crate) mod client;
mod forward;
mod held_back;
mod hostile;
mod http;
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
