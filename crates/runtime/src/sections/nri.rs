//! `[runtime.nri]`

use std::path::PathBuf;
use std::time::Duration;

use criscope_nri::NriSettings;

use criscope_settings::settings;
use criscope_settings::value::{BooleanValue, BoundedDuration, DirectoryPath, SocketPath, secs};

settings! {
    /// Plugins of the Node Resource Interface (NRI), which learn of the life of pods and containers and adjust containers
    /// that are created.
    pub struct Nri in "runtime.nri" {
        /// Starts the plugins that are installed, and lets others connect. A plugin can give any container anything of the
        /// host, hooks that run as root included.
        enable: bool = false, BooleanValue;
        /// The socket that plugins connect to, for root only.
        socket_path: PathBuf = "/var/run/nri/nri.sock".into(), SocketPath;
        /// Starts only the plugins that are installed.
        disable_connections: bool = false, BooleanValue;
        /// The directory with plugins that are started, named `NN-name`.
        plugin_path: PathBuf = "/opt/nri/plugins".into(), DirectoryPath;
        /// The directory with their configurations, `NN-name.conf` or `name.conf`.
        plugin_config_path: PathBuf = "/etc/nri/conf.d".into(), DirectoryPath;
        /// How long a plugin may take to register after it has connected.
        plugin_registration_timeout: Duration = secs(5), BoundedDuration::between(secs(1), secs(60));
        /// How long a plugin may take for each request. One that takes longer is disconnected, and the pod goes on without
        /// it.
        plugin_request_timeout: Duration = secs(2), BoundedDuration::between(secs(1), secs(60));
    }
}

impl Nri {
    /// The settings of the library; none if the interface is off.
    pub(crate) fn library(&self) -> Option<NriSettings> {
        self.enable.then(|| NriSettings {
            runtime_name: "criscope".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: (!self.disable_connections).then(|| self.socket_path.clone()),
            plugin_dir: Some(self.plugin_path.clone()),
            config_dir: self.plugin_config_path.clone(),
            registration_timeout: self.plugin_registration_timeout,
            request_timeout: self.plugin_request_timeout,
            ..NriSettings::default()
        })
    }
}
