//! How networks are attached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::observer::Observer;
use super::result::Preference;

/// Who sets `lo` up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loopback {
    /// Whoever made the namespace: [`namespace`](criscope_linux::namespace) does. No plugin runs.
    #[default]
    Builtin,
    /// The plugin `loopback`.
    Plugin,
}

/// How networks are attached.
#[derive(Clone)]
pub struct Settings {
    /// Where networks are configured.
    pub conf_dir: PathBuf,
    /// How many of them a pod gets; 0: all.
    pub max_conf_num: usize,
    /// Where plugins are looked for, in this order.
    pub bin_dirs: Vec<PathBuf>,
    /// What is attached is kept in `results` below it.
    pub cache_dir: PathBuf,
    /// Who sets `lo` up.
    pub loopback: Loopback,
    /// Interfaces are named so, and numbered from 0.
    pub interface_prefix: String,
    /// Which address is the pod's first.
    pub preference: Preference,
    /// For all plugins of an ADD, its undoing apart.
    pub add_timeout: Duration,
    /// For all plugins of a DEL, and of the undoing of an ADD.
    pub del_timeout: Duration,
    /// For all plugins of any other verb.
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
            // Less than the four minutes the kubelet gives RunPodSandbox, so that there is time to undo.
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
