//! Observation of plugins.

use std::fmt;
use std::path::Path;

use crate::error::CallError;
use crate::runtime::BoxFuture;

/// A request to a plugin in progress.
pub type PluginCallFuture<'a> = BoxFuture<'a, Result<Vec<u8>, CallError>>;

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Index and name, `NN-name`; empty before the plugin has registered.
    pub name: String,
    /// The version of the interface that the plugin was built with, if it told.
    pub nri_version: String,
    /// The process, if known.
    pub pid: Option<u32>,
    /// Set if the runtime started the plugin.
    pub pre_installed: bool,
}

/// The reason why the connection of a plugin was closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The plugin closed it.
    #[error("the plugin closed the connection")]
    Disconnected,
    /// The plugin did not answer in time.
    #[error("no answer to {0} in time")]
    Timeout(&'static str),
    /// The plugin violated the protocol.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// The plugin did not register, or could not be configured or synchronized.
    #[error("{0}")]
    Registration(String),
    /// There are too many plugins.
    #[error("there are too many plugins")]
    TooMany,
    /// The runtime shuts down.
    #[error("the runtime shuts down")]
    Shutdown,
}

impl CloseReason {
    /// All labels.
    pub const LABELS: [&'static str; 6] = [
        "disconnected",
        "timeout",
        "protocol",
        "registration",
        "too_many",
        "shutdown",
    ];

    /// The reason as a metric label, by its index in [`Self::LABELS`].
    pub const fn index(&self) -> usize {
        match self {
            Self::Disconnected => 0,
            Self::Timeout(_) => 1,
            Self::Protocol(_) => 2,
            Self::Registration(_) => 3,
            Self::TooMany => 4,
            Self::Shutdown => 5,
        }
    }
}

/// Observes plugins and the requests to them.
pub trait PluginObserver: Send + Sync + fmt::Debug {
    /// Wraps a request to a plugin.
    fn request<'a>(
        &'a self,
        _plugin: &'a str,
        _method: &'static str,
        run: PluginCallFuture<'a>,
    ) -> PluginCallFuture<'a> {
        run
    }

    /// Metadata of a request, such as `traceparent`. Called within the wrapped request.
    fn metadata(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// A plugin was registered, configured and synchronized.
    fn connected(&self, _plugin: &PluginInfo) {}

    /// The connection of a plugin was closed; `plugin` may not have registered.
    fn closed(&self, _plugin: &PluginInfo, _reason: &CloseReason) {}

    /// An installed plugin cannot be used, or the directory of the installed plugins cannot be read.
    fn unusable(&self, _path: &Path, _why: &str) {}

    /// Something else went wrong, such as an update of a container.
    fn problem(&self, _what: &str) {}

    /// The number of plugins changed.
    fn count(&self, _plugins: usize) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoPluginObserver;

impl PluginObserver for NoPluginObserver {}
