//! Exec, attach and port-forward with real connections, by clients written here, in front of a target that needs no
//! container.

mod bulk;
mod client;
mod forward;
mod hostile;
mod http;
mod limits;
mod remote;
mod server;
mod spdy;
mod target;
mod tls;
mod websocket;
