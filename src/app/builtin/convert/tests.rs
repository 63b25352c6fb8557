//! Every key of the built-in runtime has an effect on it.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::{self as builtin};
use super::*;
use crate::config::{Config, FlagOverrides, annotated_file};

/// The runtime does not read these, or they are used before it exists: `programs.rs` of the configuration has tests of
/// them.
const BEFORE: [&str; 3] = ["shim", "default_handler", "path"];

/// Keys that have no meaning without another one.
const NEEDED: [(&[&str], &str); 5] = [
    (
        &["config_path", "type_url"],
        "runtime_type = \"io.containerd.kata.v2\"\n",
    ),
    (
        &["privileged_without_host_devices_all_devices_allowed"],
        "privileged_without_host_devices = true\n",
    ),
    (&["registries_d"], "signature_policy = \"/p\"\n"),
    (
        &["max_verifiers", "per_verifier_timeout"],
        "verifier_bin_dir = \"/o\"\n",
    ),
    (
        &[
            "socket_path",
            "disable_connections",
            "plugin_path",
            "plugin_config_path",
            "plugin_registration_timeout",
            "plugin_request_timeout",
        ],
        "enable = true\n",
    ),
];

/// A value other than the default for each key, and the settings that it requires.
const OTHERS: &str = r#"
[runtime]
root = "/r"
state = "/s"
containerd_socket = "/t.sock"
cgroup_driver = "cgroupfs"
max_container_log_line_size = "1KiB"
disable_apparmor = true
apparmor_profile = "p"
enable_selinux = true
selinux_category_range = 100
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = false
disable_hugetlb_controller = true
device_ownership_from_security_context = true
ignore_image_defined_volumes = true
enable_unprivileged_ports = false
enable_unprivileged_icmp = false
sysctls = { "kernel.sem" = "1 2 3 4" }
default_capabilities = ["KILL"]
unset_seccomp_profile = "runtime/default"
pids_limit = 1
default_ulimits = ["nofile=1:2"]
cdi_spec_dirs = []
hooks_dir = ["/v"]
blockio_config_file = "/x"
ignore_blockio_not_enabled_errors = true
rdt_config_file = "/y"
ignore_rdt_not_enabled_errors = true
drain_exec_sync_io_timeout = "1s"
enable_criu = true
stats_collect_period = "3s"
[runtime.handlers.runc]
options = ["--debug"]
root = "/q"
systemd_cgroup = true
no_pivot = true
no_new_keyring = true
pod_annotations = ["a.*"]
container_annotations = ["b"]
privileged_without_host_devices = true
privileged_without_host_devices_all_devices_allowed = true
cgroup_writable = true
cni_conf_dir = "/n"
cni_max_conf_num = 2
timeout = "90s"
[runtime.handlers.kata]
runtime_type = "io.containerd.kata.v2"
config_path = "/w.toml"
type_url = "x"
[runtime.cni]
conf_dir = "/d"
max_conf_num = 3
bin_dirs = ["/e"]
cache_dir = "/f"
conf_template = "/g"
ip_pref = "cni"
interface_prefix = "net"
loopback = "plugin"
gc_at_start = true
add_timeout = "1s"
del_timeout = "2s"
query_timeout = "3s"
[runtime.images]
root = "/h"
certs_dirs = ["/i"]
docker_config = "/j"
max_concurrent_downloads = 4
image_pull_progress_timeout = "5s"
image_pull_least_rate = "2KiB"
insecure_redirect_hosts = ["blobs.example"]
connect_timeout = "6s"
retries = 7
max_layer_size = "8MiB"
max_unpacked_size = "9MiB"
max_layer_entries = 10000
max_layer_ratio = 11
min_free_space = 12
keep_unused = "13s"
wait_for_disk = true
import_dir = "/l"
pinned_images = ["m*"]
platform = "linux/arm64"
verifier_bin_dir = "/o"
max_verifiers = 14
per_verifier_timeout = "15s"
signature_policy = "/p/policy.json"
signature_policy_dir = "/r"
registries_d = "/r.d"
registries_conf = "/s.conf"
keyprovider_config = "/u.conf"
keyprovider_timeout = "16s"
[runtime.nri]
enable = true
socket_path = "/t.sock"
disable_connections = true
plugin_path = "/u"
plugin_config_path = "/v"
plugin_registration_timeout = "16s"
plugin_request_timeout = "17s"
"#;

/// All settings passed to the runtime, as text.
fn passed(text: &str) -> String {
    let config = Config::from_text("test", text, &FlagOverrides::default()).expect("valid");
    let config = config.runtime.expect("built in");
    let options = node_options(&config);
    let runc = config.handlers.first().expect("one").clone();
    let oci = oci_runtime(&config, &runc, Path::new("/runc"));
    let handlers = vec![handler(&config, &runc, oci)];
    // A test must not load profiles into the kernel.
    let looked = NodeOptions {
        disable_apparmor: true,
        ..NodeOptions::default()
    };
    let node = crate::runtime::node::detect(&looked).expect("a node");
    let found = UsableHandlers {
        handlers,
        default: "runc".into(),
        node,
        missing: Vec::new(),
    };
    let settings = builtin::settings(&config, "/shim".into(), found);
    let cni = &settings.cni;
    // Those that its `Debug` omits.
    let cni = (
        cni.max_conf_num,
        &cni.cache_dir,
        (cni.loopback, cni.preference, &cni.interface_prefix),
        (cni.add_timeout, cni.del_timeout, cni.query_timeout),
    );
    format!("{options:?} {settings:?} {cni:?}")
}

/// The keys of a document below `[runtime`, each with its table.
fn keys(text: &str) -> BTreeSet<(String, String)> {
    let mut table = String::new();
    let mut all = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim_start_matches('#');
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && table.starts_with("runtime")
            && !key.contains(' ')
        {
            let table = if table.starts_with("runtime.handlers") {
                "runtime.handlers"
            } else {
                &table
            };
            all.insert((table.to_owned(), key.to_owned()));
        }
    }
    all
}

#[test]
fn every_key_of_the_example_is_tested() {
    let mut example = keys(&annotated_file());
    example.retain(|(_, key)| !BEFORE.contains(&key.as_str()));
    assert!(example.len() > 50, "{example:?}");
    assert_eq!(keys(OTHERS), example);
}

#[test]
fn every_key_changes_the_options_of_the_runtime() {
    let base = "[runtime.handlers.runc]\n";
    let mut table = "";
    for line in OTHERS.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            table = line;
            continue;
        }
        let key = line.split(' ').next().unwrap_or_default();
        let needed = NEEDED.iter().find(|(names, _)| names.contains(&key));
        let with = needed.map_or("", |(_, with)| with);
        let (text, without) = if table.contains("handlers") {
            (format!("{base}{with}{line}\n"), format!("{base}{with}"))
        } else {
            (
                format!("{base}{table}\n{with}{line}\n"),
                format!("{base}{table}\n{with}"),
            )
        };
        let without = passed(&without);
        assert_ne!(passed(&text), without, "{table} {line} has no effect");
    }
}
