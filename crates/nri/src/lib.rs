//! The Node Resource Interface for container runtimes.
//!
#![doc = include_str!("../README.md")]

mod adaptation;
pub mod api;
mod connection;
mod error;
mod events;
mod frame;
mod launch;
mod listen;
mod merge;
mod observer;
mod plugin;
mod plugin_end;
mod runtime;
mod settings;
mod updates;

pub use self::adaptation::{Adaptation, SyncBlock};
pub use self::error::{CallError, EventError, ListenError};
pub use self::events::UpdatedContainer;
pub use self::merge::removed_key;
pub use self::observer::{
    CloseReason, NoPluginObserver, PluginCallFuture, PluginInfo, PluginObserver,
};
pub use self::plugin_end::{PluginReply, PluginStub};
pub use self::runtime::{BoxFuture, EvictionRequest, Runtime};
pub use self::settings::NriSettings;
