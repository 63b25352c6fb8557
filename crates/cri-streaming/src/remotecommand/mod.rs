//! Exec and attach: the standard streams of a command or container, and its result.

mod resize;
mod run;
mod spdy;
mod status;
#[cfg(test)]
mod tests;
mod websocket;

pub(super) use self::spdy::serve as serve_spdy;
pub use self::status::CommandResult;
pub(super) use self::websocket::serve as serve_websocket;
