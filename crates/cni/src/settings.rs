//! Settings of pod networks.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::observer::Observer;
use super::result::Preference;

/// The component that brings up `lo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loopback {
    /// The creator of the namespace, for example [`namespace`](criscope_linux::namespace). No plugin runs.
    #[default]
    Builtin,
    /// The plugin `loopback`.
    Plugin,
}

/// Settings of pod networks.
#[derive(Clone)]
pub struct Settings {
    /// Directory with network configurations.
    pub conf_dir: PathBuf,
    /// Maximum number of networks per pod; 0 means all.
    pub max_conf_num: usize,
    /// Directories with plugins, in the order of search.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory of the cache; results are in `results` below it.
    pub cache_dir: PathBuf,
    /// The component that brings up `lo`.
    pub loopback: Loopback,
    /// Prefix of interface names, which are numbered from 0.
    pub interface_prefix: String,
    /// The address that becomes the pod's primary one.
    pub preference: Preference,
    /// Timeout of all plugins of an ADD, without its rollback.
    pub add_timeout: Duration,
    /// Timeout of all plugins of a DEL, and of the rollback of an ADD.
    pub del_timeout: Duration,
    /// Timeout of all plugins of any other verb.
    pub query_timeout: Duration,
    /// Observes the runs of plugins.
    pub observer: Observer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            max_conf_num: 1,
            bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cache_dir: "/var/lib/cni".into(),
            loopback: Loopback::Builtin,
            interface_prefix: "eth".to_owned(),
            preference: Preference::Ipv4,
            // Below the kubelet's timeout of RunPodSandbox (four minutes), to leave time for the rollback.
            add_timeout: Duration::from_secs(180),
            del_timeout: Duration::from_secs(60),
            query_timeout: Duration::from_secs(10),
            observer: Observer::default(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("conf_dir", &self.conf_dir)
            .field("bin_dirs", &self.bin_dirs)
            .finish_non_exhaustive()
    }
}
