//! `[runtime.cni]`

use std::path::PathBuf;
use std::time::Duration;

use criscope_cni::{Loopback, Preference};

use criscope_settings::settings;
use criscope_settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, DIRECTORIES_DESCRIPTION, DirectoryPath, FilePath,
    InterfacePrefix, KeywordChoice, ListOf, OptionalValue, secs,
};

settings! {
    /// The networks of pods, attached by CNI plugins.
    pub struct Cni in "runtime.cni" {
        /// The directory with network configurations. Changes apply to the next pod.
        conf_dir: PathBuf = "/etc/cni/net.d".into(), DirectoryPath;
        /// How many of the networks a pod is attached to, in the order of their file names; 0 means all.
        max_conf_num: usize = 1, BoundedNumber::between(0, 64);
        /// Directories with plugins, searched in this order.
        bin_dirs: Vec<PathBuf> = vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()], ListOf { of: DirectoryPath, words: DIRECTORIES_DESCRIPTION };
        /// Results of attachments are cached in `results` below it, as libcni does.
        cache_dir: PathBuf = "/var/lib/cni".into(), DirectoryPath;
        /// A template that is written as a network into `conf_dir` (`99-criscope-net.conflist`) when the kubelet announces
        /// the pod CIDR of the node and there is no network yet: for nodes where nothing else writes one. It has the syntax
        /// of containerd's: `{{.PodCIDR}}`, and `{{range}}` over `.PodCIDRRanges` and `.Routes`.
        conf_template: Option<PathBuf> = None, OptionalValue(FilePath),
            or "none" like "\"/etc/criscope/10-criscope.conflist.template\"";
        /// Which address is the first of a pod; `cni` keeps the order of the plugins.
        ip_pref: Preference = Preference::Ipv4, KeywordChoice(&[
            ("ipv4", Preference::Ipv4), ("ipv6", Preference::Ipv6), ("cni", Preference::Cni),
        ]);
        /// The prefix of the names of a pod's interfaces, which are numbered from 0.
        interface_prefix: String = "eth".to_owned(), InterfacePrefix;
        /// What brings up `lo`: criscope itself, or the CNI plugin `loopback`.
        loopback: Loopback = Loopback::Builtin, KeywordChoice(&[("builtin", Loopback::Builtin), ("plugin", Loopback::Plugin)]);
        /// Lets plugins release at start, before calls are served, the addresses and the like of a network that no cached
        /// attachment holds (GC, for networks of CNI 1.1). Only where no other program with a cache of its own uses the networks.
        gc_at_start: bool = false, BooleanValue;
        /// Timeout of all plugins that attach a pod. The kubelet gives up on a pod after four minutes.
        add_timeout: Duration = secs(180), BoundedDuration::between(secs(1), secs(230));
        /// Timeout of all plugins that detach a pod.
        del_timeout: Duration = secs(60), BoundedDuration::between(secs(1), secs(600));
        /// Timeout of all plugins of one query (CHECK, STATUS, GC).
        query_timeout: Duration = secs(10), BoundedDuration::between(secs(1), secs(110));
    }
}

impl Cni {
    /// The settings of the library.
    pub(crate) fn library(&self) -> criscope_cni::Settings {
        criscope_cni::Settings {
            conf_dir: self.conf_dir.clone(),
            max_conf_num: self.max_conf_num,
            bin_dirs: self.bin_dirs.clone(),
            cache_dir: self.cache_dir.clone(),
            loopback: self.loopback,
            interface_prefix: self.interface_prefix.clone(),
            preference: self.ip_pref,
            add_timeout: self.add_timeout,
            del_timeout: self.del_timeout,
            query_timeout: self.query_timeout,
            ..criscope_cni::Settings::default()
        }
    }
}
