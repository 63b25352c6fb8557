//! The keys of the built-in runtime's networks and images.

use std::path::PathBuf;
use std::time::Duration;

use super::super::value::{
    Choice, Count, DirPath, FilePath, ImageName, InterfacePrefix, List, PlatformName, Size, Span,
};
use super::super::{ImagePattern, IpPreference, Loopback};
use super::{Described, Is, Key, Reload, Unset, table};

const PATHS: &str = "an array of absolute paths of directories";

table! {
    CNI_CONF_DIR: DirPath, Is<PathBuf> = Key {
        section: "runtime.cni",
        name: "conf_dir",
        kind: DirPath,
        default: Is(|| PathBuf::from("/etc/cni/net.d")),
        reload: Reload::Restart,
        help: "Where networks are configured. What changes there counts for the next pod.",
    };
    CNI_MAX_CONF_NUM: Count, Is<usize> = Key {
        section: "runtime.cni",
        name: "max_conf_num",
        kind: Count { least: 0, most: 64 },
        default: Is(|| 1),
        reload: Reload::Restart,
        help: "How many of them a pod gets, in the order of their file names; 0 for all.",
    };
    CNI_BIN_DIRS: List<DirPath>, Is<Vec<PathBuf>> = Key {
        section: "runtime.cni",
        name: "bin_dirs",
        kind: List { of: DirPath, words: PATHS },
        default: Is(|| vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()]),
        reload: Reload::Restart,
        help: "Where plugins are looked for, in this order.",
    };
    CNI_CACHE_DIR: DirPath, Is<PathBuf> = Key {
        section: "runtime.cni",
        name: "cache_dir",
        kind: DirPath,
        default: Is(|| PathBuf::from("/var/lib/cni")),
        reload: Reload::Restart,
        help: "What is attached is remembered in `results` below it, as libcni does.",
    };
    CNI_CONF_TEMPLATE: FilePath, Unset = Key {
        section: "runtime.cni",
        name: "conf_template",
        kind: FilePath,
        default: Unset("none"),
        reload: Reload::Restart,
        help: "A template that becomes a network in `conf_dir` (`99-criscope-net.conflist`) when the kubelet tells the node's pod CIDR and there is no network yet: for nodes on which nothing else writes one. It is written as for containerd: `{{.PodCIDR}}`, and `{{range}}` over `.PodCIDRRanges` and `.Routes`.",
    };
    CNI_IP_PREF: Choice<IpPreference>, Is<IpPreference> = Key {
        section: "runtime.cni",
        name: "ip_pref",
        kind: Choice(&[
            ("ipv4", IpPreference::Ipv4),
            ("ipv6", IpPreference::Ipv6),
            ("cni", IpPreference::Cni),
        ]),
        default: Is(|| IpPreference::Ipv4),
        reload: Reload::Restart,
        help: "Which address is the pod's first; `cni` keeps the order of the plugins.",
    };
    CNI_INTERFACE_PREFIX: InterfacePrefix, Is<String> = Key {
        section: "runtime.cni",
        name: "interface_prefix",
        kind: InterfacePrefix,
        default: Is(|| "eth".to_owned()),
        reload: Reload::Restart,
        help: "A pod's interfaces are called so, and numbered from 0.",
    };
    CNI_LOOPBACK: Choice<Loopback>, Is<Loopback> = Key {
        section: "runtime.cni",
        name: "loopback",
        kind: Choice(&[("builtin", Loopback::Builtin), ("plugin", Loopback::Plugin)]),
        default: Is(|| Loopback::Builtin),
        reload: Reload::Restart,
        help: "Who sets `lo` up: criscope itself, or the CNI plugin of that name.",
    };
    CNI_ADD_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.cni",
        name: "add_timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(230) },
        default: Is(|| Duration::from_secs(180)),
        reload: Reload::Restart,
        help: "For all plugins that attach a pod. The kubelet gives up on a pod after four minutes.",
    };
    CNI_DEL_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.cni",
        name: "del_timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(60)),
        reload: Reload::Restart,
        help: "For all plugins that detach a pod.",
    };
    CNI_QUERY_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.cni",
        name: "query_timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(110) },
        default: Is(|| Duration::from_secs(10)),
        reload: Reload::Restart,
        help: "For all plugins that are asked how they are (CHECK, STATUS, GC).",
    };
    IMAGES_ROOT: DirPath, Unset = Key {
        section: "runtime.images",
        name: "root",
        kind: DirPath,
        default: Unset("`images` below `runtime.root`"),
        reload: Reload::Restart,
        help: "Where images and their layers lie. The kubelet's image garbage collection watches the file system it is on, and overlayfs must be able to stack what is there.",
    };
    IMAGES_CERTS_DIRS: List<DirPath>, Is<Vec<PathBuf>> = Key {
        section: "runtime.images",
        name: "certs_dirs",
        kind: List { of: DirPath, words: PATHS },
        default: Is(|| vec!["/etc/containerd/certs.d".into(), "/etc/docker/certs.d".into()]),
        reload: Reload::Restart,
        help: "Mirrors, certificates and headers of registries, a folder for each, with `hosts.toml` as containerd documents it. The first directory that knows a registry wins. Read for each pull.",
    };
    IMAGES_DOCKER_CONFIG: FilePath, Unset = Key {
        section: "runtime.images",
        name: "docker_config",
        kind: FilePath,
        default: Unset("none"),
        reload: Reload::Restart,
        help: "Docker's `config.json` with credentials, for pulls without credentials of their own. Read for each pull.",
    };
    IMAGES_DOWNLOADS: Count, Is<usize> = Key {
        section: "runtime.images",
        name: "max_concurrent_downloads",
        kind: Count { least: 1, most: 64 },
        default: Is(|| 3),
        reload: Reload::Restart,
        help: "Layers that are fetched and unpacked at the same time, over all pulls. Up to twice as many more are for pulls that would have none because others are slow.",
    };
    IMAGES_PROGRESS_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.images",
        name: "image_pull_progress_timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(3600) },
        default: Is(|| Duration::from_secs(60)),
        reload: Reload::Restart,
        help: "How long a registry may say nothing, or send less than 64 KiB, before a request is made again.",
    };
    IMAGES_CONNECT_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.images",
        name: "connect_timeout",
        kind: Span { least: Duration::from_millis(100), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(30)),
        reload: Reload::Restart,
        help: "How long a connection to a registry may take to stand; `dial_timeout` in its `hosts.toml` goes before.",
    };
    IMAGES_RETRIES: Count, Is<usize> = Key {
        section: "runtime.images",
        name: "retries",
        kind: Count { least: 0, most: 100 },
        default: Is(|| 4),
        reload: Reload::Restart,
        help: "How often a request is made again without any progress in between, before the next mirror is asked.",
    };
    IMAGES_MAX_LAYER: Size, Is<usize> = Key {
        section: "runtime.images",
        name: "max_layer_size",
        kind: Size { least: 1 << 20, most: 1 << 50 },
        default: Is(|| 64 << 30),
        reload: Reload::Restart,
        help: "Largest layer as it is fetched.",
    };
    IMAGES_MAX_UNPACKED: Size, Is<usize> = Key {
        section: "runtime.images",
        name: "max_unpacked_size",
        kind: Size { least: 1 << 20, most: 1 << 50 },
        default: Is(|| 256 << 30),
        reload: Reload::Restart,
        help: "Largest layer when it is unpacked.",
    };
    IMAGES_MAX_ENTRIES: Count, Is<usize> = Key {
        section: "runtime.images",
        name: "max_layer_entries",
        kind: Count { least: 1000, most: 1 << 32 },
        default: Is(|| 4_000_000),
        reload: Reload::Restart,
        help: "The most files and directories of a layer.",
    };
    IMAGES_MAX_RATIO: Count, Is<usize> = Key {
        section: "runtime.images",
        name: "max_layer_ratio",
        kind: Count { least: 10, most: 1 << 20 },
        default: Is(|| 200),
        reload: Reload::Restart,
        help: "How many times larger than what was fetched a layer of more than 1 GiB may be when it is unpacked.",
    };
    IMAGES_MIN_FREE: Size, Is<usize> = Key {
        section: "runtime.images",
        name: "min_free_space",
        kind: Size { least: 0, most: 1 << 50 },
        default: Is(|| 256 << 20),
        reload: Reload::Restart,
        help: "Room that no pull takes from the disk.",
    };
    IMAGES_KEEP_UNUSED: Span, Is<Duration> = Key {
        section: "runtime.images",
        name: "keep_unused",
        kind: Span { least: Duration::ZERO, most: Duration::from_secs(30 * 86400) },
        default: Is(|| Duration::from_secs(3600)),
        reload: Reload::Restart,
        help: "How long layers, and beginnings of layers, stay that no image needs, so that the next try of a pull goes on from there.",
    };
    IMAGES_IMPORT_DIR: DirPath, Unset = Key {
        section: "runtime.images",
        name: "import_dir",
        kind: DirPath,
        default: Unset("`import` below `runtime.root`"),
        reload: Reload::Restart,
        help: "Image archives in it (`*.tar` of the OCI or docker, also compressed: `.tar.gz`, `.tgz`, `.tar.zst`, `.tzst`) are taken in at start, and when they appear or change while criscope runs: for nodes without a network. It need not exist. `criscope load-image` takes in one archive and needs no folder.",
    };
    IMAGES_PINNED: List<ImageName>, Is<Vec<ImagePattern>> = Key {
        section: "runtime.images",
        name: "pinned_images",
        kind: List { of: ImageName, words: "an array of image names, which may begin and end with `*`" },
        default: Is(Vec::new),
        reload: Reload::Restart,
        help: "Images that the kubelet's garbage collection must leave alone, however they came; who removes one by name removes it. Names are whole: `docker.io/library/busybox:1.36`.",
    };
    IMAGES_PLATFORM: PlatformName, Unset = Key {
        section: "runtime.images",
        name: "platform",
        kind: PlatformName,
        default: Unset("that of this machine"),
        reload: Reload::Restart,
        help: "Which of the images behind one name is taken, for nodes that emulate another.",
    };
}
