//! Settings.

use std::path::PathBuf;
use std::time::Duration;

/// The settings of the interface, with the paths and timeouts of the reference implementation as defaults.
#[derive(Clone, Debug)]
pub struct NriSettings {
    /// The name of the runtime for plugins.
    pub runtime_name: String,
    /// The version of the runtime.
    pub runtime_version: String,
    /// The socket that plugins connect to; `None` accepts no connections.
    pub socket: Option<PathBuf>,
    /// The directory with plugins that are started, named `NN-name`; `None` starts none.
    pub plugin_dir: Option<PathBuf>,
    /// The directory with their configurations: `NN-name.conf`, else `name.conf`.
    pub config_dir: PathBuf,
    /// How long a connected plugin may take to register.
    pub registration_timeout: Duration,
    /// How long a plugin may take for each request.
    pub request_timeout: Duration,
    /// Upper bound of plugins, including plugins that are registering.
    pub max_plugins: usize,
}

impl Default for NriSettings {
    fn default() -> Self {
        Self {
            runtime_name: env!("CARGO_PKG_NAME").to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: Some("/var/run/nri/nri.sock".into()),
            plugin_dir: Some("/opt/nri/plugins".into()),
            config_dir: "/etc/nri/conf.d".into(),
            registration_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(2),
            max_plugins: 64,
        }
    }
}
