//! The configuration: all sections, each declared by the module that uses it (see [`crate::settings`]), and the checks that
//! concern several of them.

mod load;
mod reference;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use load::{FlagOverrides, LoadedConfig};
pub use reference::{annotated_file, reference_markdown};

pub use crate::admin::settings::{AdminSettings, MetricsEndpointSettings};
pub use crate::lifecycle::settings::{
    ContainerdSettings, ReceiverSettings, RecorderSettings, SamplerSettings, StorySettings,
};
pub use crate::proxy::backend::settings::{BackendKind, BackendSettings};
pub use crate::proxy::faults::settings::FaultSettings;
pub use crate::proxy::listener::settings::ServerSettings;
pub use crate::proxy::pod_index::settings::IdentityLimits;
pub use crate::proxy::router::settings::{RoutingRuleSettings, RoutingSettings};
pub use crate::runtime::oci::spec::CgroupDriver;
pub use crate::runtime::sections::{Cni, Handler, Images, Misfit, Runtime};
pub use crate::settings::{ConfigError, ConfigErrors};
pub use crate::streaming::settings::StreamingSettings;
pub use crate::telemetry::settings::{LogSettings, OtlpSettings, SamplingSettings};

use crate::proxy::{backend, router};
use crate::settings::{
    EffectiveSettings, SettingsReader, SettingsSection as _, fingerprint, lexical, settings,
};

settings! {
    /// All settings of one process.
    pub struct Config in "" (upstream: Option<&str>) {}
    parts {
        server: ServerSettings = ServerSettings::read;
        admin: AdminSettings = |reader| AdminSettings::checked(reader, &server.listen);
        metrics: MetricsEndpointSettings = MetricsEndpointSettings::read;
        /// At least one, in the order of the file.
        backends: Vec<BackendSettings> = |reader| backend::settings::read(reader, upstream, &server.listen);
        routing: RoutingSettings = |reader| routing(reader, &backends, upstream);
        telemetry: TelemetrySettings = TelemetrySettings::read;
        story: StorySettings = |reader| StorySettings::read(reader, &server.listen);
        sampler: SamplerSettings = SamplerSettings::read;
        containerd: ContainerdSettings = ContainerdSettings::read;
        receiver: ReceiverSettings = ReceiverSettings::read;
        recorder: RecorderSettings = RecorderSettings::read;
        faults: FaultSettings = FaultSettings::read;
        streaming: StreamingSettings = StreamingSettings::checked;
        /// Only if a backend is the built-in runtime. It is checked in any case.
        runtime: Option<Box<Runtime>> = |reader| {
            let runtime = Runtime::checked(reader, &sockets(&server, &admin, &backends));
            backends.iter().any(BackendSettings::is_builtin).then(|| Box::new(runtime))
        };
    }
}

settings! {
    /// Logs, traces and limits of the pod index.
    pub struct TelemetrySettings in "telemetry" {}
    parts {
        log: LogSettings = LogSettings::read;
        otlp: OtlpSettings = OtlpSettings::checked;
        sampling: SamplingSettings = SamplingSettings::from_reader;
        identity: IdentityLimits = IdentityLimits::read;
    }
}

/// The keys with a socket, and the sockets: criscope's own, and those that it connects to. None without the built-in runtime, whose
/// sockets are not bound then.
fn sockets<'a>(
    server: &'a ServerSettings,
    admin: &'a AdminSettings,
    backends: &'a [BackendSettings],
) -> Vec<(String, &'a Path)> {
    if !backends.iter().any(BackendSettings::is_builtin) {
        return Vec::new();
    }
    let mut sockets = vec![("server.listen".to_owned(), server.listen.as_path())];
    for (key, path) in [
        ("admin.socket", &admin.socket),
        ("admin.agent_socket", &admin.agent_socket),
    ] {
        sockets.extend(path.as_deref().map(|path| (key.to_owned(), path)));
    }
    let endpoint = |backend: &'a BackendSettings| {
        let path = backend.endpoint.as_deref()?;
        Some((format!("backends.{}.endpoint", backend.name), path))
    };
    sockets.extend(backends.iter().filter_map(endpoint));
    sockets
}

fn routing(
    reader: &mut SettingsReader<'_>,
    backends: &[BackendSettings],
    upstream: Option<&str>,
) -> RoutingSettings {
    let names: Vec<_> = backends.iter().map(|backend| &*backend.name).collect();
    let flag = upstream.map(|_| backend::settings::UPSTREAM);
    router::settings::read(reader, &names, flag)
}

impl Config {
    /// The defaults with one upstream: `criscope serve --upstream unix:///...`.
    pub fn with_upstream(endpoint: PathBuf) -> Self {
        let mut config = Self::read(&mut SettingsReader::empty(), Some("/upstream"));
        config.backends[0].endpoint = Some(endpoint);
        config
    }

    /// The defaults with the built-in runtime: `criscope serve`.
    pub fn builtin() -> Self {
        Self::read(&mut SettingsReader::empty(), None)
    }

    /// The socket that stands in for containerd's, if the built-in runtime has one.
    pub fn containerd_socket(&self) -> Option<&Path> {
        self.runtime.as_ref()?.containerd_socket.as_deref()
    }

    /// Returns whether the CRI is served at this path.
    pub fn serves_at(&self, path: &Path) -> bool {
        let sockets = [Some(self.server.listen.as_path()), self.containerd_socket()];
        let mut sockets = sockets.into_iter().flatten();
        sockets.any(|socket| lexical(socket) == lexical(path))
    }

    /// All effective values by key path.
    pub fn settings(&self) -> EffectiveSettings {
        let mut settings = EffectiveSettings::new();
        self.list("", &mut settings);
        settings
    }

    /// See [`fingerprint`].
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.settings())
    }

    /// This configuration with the live values of another, as in effect after a reload.
    #[must_use]
    pub fn with_reloadable_of(&self, new: &Config) -> Config {
        let mut config = self.clone();
        config.reload(new);
        config
    }
}

/// Key paths with different values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedSettings {
    /// Those that take effect now.
    pub reloadable: Vec<String>,
    /// Those that need a restart.
    pub restart: Vec<String>,
}

/// Compares two configurations key by key.
pub fn reload_diff(old: &Config, new: &Config) -> ChangedSettings {
    let (old, mut all) = (old.settings(), new.settings());
    let new = all.clone();
    all.extend(old.clone());
    let mut diff = ChangedSettings::default();
    for (path, setting) in all {
        if old.get(&path) == new.get(&path) {
            continue;
        }
        let list = if setting.live {
            &mut diff.reloadable
        } else {
            &mut diff.restart
        };
        list.push(path);
    }
    diff
}
