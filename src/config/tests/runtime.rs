//! The built-in runtime: when it is configured, and its settings.

use super::*;

const BUILTIN: &str = "[backends.mine]\nkind = \"builtin\"\n";

pub(super) fn runtime(text: &str) -> Runtime {
    let config = load(&format!("{BUILTIN}{text}")).expect("valid");
    *config.runtime.expect("built in")
}

#[test]
fn without_any_backend_there_is_the_built_in_one() {
    let nothing = Config::load(None, &FlagOverrides::default()).expect("enough");
    assert_eq!(nothing.config, Config::builtin());
    assert_eq!(nothing.config.routing.default, "builtin");
    let file = load("[server]\n[runtime]\nroot = \"/srv/x\"\n").expect("valid");
    assert_eq!(file.backends, Config::builtin().backends);
    let runtime = file.runtime.expect("built in");
    assert_eq!(runtime.root, Path::new("/srv/x"));
    assert_eq!(runtime.images.root, Path::new("/srv/x/images"));
    assert_eq!(runtime.images.import_dir, Path::new("/srv/x/import"));
}

#[test]
fn with_an_upstream_alone_there_is_none_but_its_settings_are_checked() {
    let config = load_with("", &upstream("/run/a.sock")).expect("valid");
    assert_eq!(config.runtime, None);
    let with_settings = format!("{ONE}[runtime]\npids_limit = 5\n");
    assert_eq!(load(&with_settings).expect("valid").runtime, None);
    assert_eq!(
        errors(&format!("{ONE}[runtime]\npids_limit = -1\n")),
        ["c.toml:5: runtime.pids_limit: -1 is out of range; it must be from 0 to 4194304"]
    );
}

#[test]
fn both_kinds_can_be_in_one_file() {
    let both = format!("{ONE}{BUILTIN}[routing]\ndefault = \"mine\"\nimages = \"containerd\"\n");
    let config = load(&both).expect("valid");
    let kinds: Vec<_> = config
        .backends
        .iter()
        .map(|backend| (backend.name.as_str(), backend.endpoint.as_deref()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("containerd", Some(Path::new("/run/c.sock"))),
            ("mine", None)
        ]
    );
    assert!(config.runtime.is_some());

    let flag = upstream("/run/flag.sock");
    let error = load_with(BUILTIN, &flag).expect_err("which is the default?");
    assert!(error.starts_with("--upstream: adds the backend \"upstream\" to \"mine\""));
    let named = "[backends.upstream]\nkind = \"builtin\"\n";
    assert_eq!(load_with(named, &flag).expect("replaced").runtime, None);
}

#[test]
fn there_is_one_built_in_runtime_and_it_has_no_endpoint() {
    let text = format!(
        "{BUILTIN}[backends.b]\nkind = \"builtin\"\nendpoint = \"/run/b.sock\"\n[routing]\ndefault = \"mine\"\n"
    );
    assert_eq!(
        errors(&text),
        [
            "c.toml:4: backends.b.kind: backend \"mine\" is the built-in runtime already, and there is only one",
            "c.toml:5: backends.b.endpoint: the built-in runtime has no endpoint; remove it, or use kind = \"upstream\"",
        ]
    );
}

#[test]
fn the_defaults_are_those_a_node_has_with_containerd() {
    let runtime = runtime("");
    assert_eq!(Some(Box::new(runtime.clone())), Config::builtin().runtime);
    assert_eq!(runtime.max_container_log_line_size, 16384);
    assert_eq!(runtime.pods.default_capabilities.len(), 14);
    assert!(runtime.pods.enable_unprivileged_ports && runtime.pods.enable_unprivileged_icmp);
    assert_eq!(
        runtime.pods.unset_seccomp_profile,
        SeccompProfile::Unconfined
    );
    assert_eq!(runtime.cni.max_conf_num, 1);
    assert_eq!(runtime.images.max_concurrent_downloads, 3);
    assert!(runtime.handlers.is_empty());
}

#[test]
fn every_key_of_the_runtime_changes_something() {
    let text = r#"
[runtime]
root = "/a"
state = "/b"
shim = "/c"
cgroup_driver = "systemd"
default_handler = "kata"
containerd_socket = "/t.sock"
max_container_log_line_size = "32KiB"
disable_apparmor = true
apparmor_profile = "p"
enable_selinux = true
selinux_category_range = 512
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
[runtime.handlers.kata]
runtime_type = "io.containerd.kata.v2"
config_path = "/c.toml"
type_url = "t"
path = "/k"
options = ["--debug"]
root = "/r"
systemd_cgroup = false
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
[runtime.cni]
conf_dir = "/d"
max_conf_num = 0
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
platform = "linux/arm/v7"
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
    let config = load(&format!("{BUILTIN}{text}")).expect("valid");
    let settings = config.settings();
    let bare = format!("{BUILTIN}[runtime.handlers.kata]\n");
    let defaults = load(&bare).expect("valid").settings();
    let schema = SettingsSchema::from_section::<Config>();
    let keys = schema.keys.iter();
    let of_runtime = keys.filter(|key| key.section.starts_with("runtime"));
    for key in of_runtime {
        let section = key.section.replace("NAME", "kata");
        let path = format!("{section}.{}", key.name);
        let value = settings.get(&path).expect(&path);
        assert_ne!(Some(value), defaults.get(&path), "{path}");
        // The displayed value can be parsed. Two keys are options for a shim.
        let beside = match key.name {
            "config_path" | "type_url" => "runtime_type = \"io.containerd.kata.v2\"\n",
            _ => "",
        };
        let line = format!("[{section}]\n{beside}{} = {}\n", key.name, value.value);
        let again = match path.as_str() {
            "runtime.default_handler" => continue,
            path if path.ends_with("all_devices_allowed") => continue,
            _ => load(&format!("{BUILTIN}{line}")).expect(&path).settings(),
        };
        assert_eq!(again.get(&path), Some(value), "{path}");
    }
}

#[test]
fn everything_wrong_is_told_at_once_with_the_nearest_key() {
    let text = r#"[backends.mine]
kind = "builtin"
[runtime]
rot = "/var/lib/x"
cgroup_driver = "cgroup"
default_handler = "rucn"
max_container_log_line_size = "16KB"
sysctls = { "vm.swappiness" = "1" }
default_capabilities = ["CHOWN", "CHOWM"]
cdi_spec_dirs = "/etc/cdi"
stats_collect_period = "0s"
conf_dir = "/etc/cni/net.d"
[runtime.handlers.runc]
paht = "/usr/sbin/runc"
privileged_without_host_devices_all_devices_allowed = true
[runtime.handlers."a/b"]
[runtime.cni]
bin_dirs = ["opt/cni/bin"]
ip_pref = "v4"
[runtime.images]
pinned_images = ["*"]
platform = "arm64"
max_download = 3
"#;
    let expected = [
        "c.toml:4: runtime.rot: unknown key; did you mean `root`?",
        "c.toml:5: runtime.cgroup_driver: expected \"auto\" or \"cgroupfs\" or \"systemd\", found \"cgroup\"",
        "c.toml:6: runtime.default_handler: there is no handler \"rucn\"; did you mean `runc`?",
        "c.toml:7: runtime.max_container_log_line_size: \"16KB\" is ambiguous; write \"16KiB\"",
        "c.toml:8: runtime.sysctls: \"vm.swappiness\" is not a kernel parameter that a pod can set for itself",
        "c.toml:9: runtime.default_capabilities: entry 2: there is no capability \"CHOWM\"",
        "c.toml:10: runtime.cdi_spec_dirs: expected an array of absolute paths of directories, found \"/etc/cdi\"",
        "c.toml:11: runtime.stats_collect_period: \"0s\" is out of range; it must be from 1s to 10m",
        "c.toml:12: runtime.conf_dir: unknown key; did you mean `cni.conf_dir`?",
        "c.toml:14: runtime.handlers.runc.paht: unknown key; did you mean `path`?",
        "c.toml:15: runtime.handlers.runc.privileged_without_host_devices_all_devices_allowed: has no effect without privileged_without_host_devices = true",
        "c.toml:16: runtime.handlers.a/b: \"a/b\" is not a name for a handler; use 1 to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`, and do not begin with `.`",
        "c.toml:18: runtime.cni.bin_dirs: entry 1: \"opt/cni/bin\" is not an absolute path",
        "c.toml:19: runtime.cni.ip_pref: expected \"ipv4\" or \"ipv6\" or \"cni\", found \"v4\"",
        "c.toml:21: runtime.images.pinned_images: entry 1: \"*\" is not the name of an image; `*` may only begin and end it",
        "c.toml:22: runtime.images.platform: expected a platform such as \"linux/arm64\" or \"linux/arm/v7\", found \"arm64\"",
        "c.toml:23: runtime.images.max_download: unknown key; known here: ",
    ];
    let found = errors(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_survives_a_reboot_and_what_must_not_are_apart() {
    for (root, state, says) in [
        ("/a", "/a", "runtime.state: /a lies in runtime.root"),
        ("/a", "/a/b", "runtime.state: /a/b lies in runtime.root"),
        (
            "/run/x/y",
            "/var/run/x",
            "runtime.root: /run/x/y lies in runtime.state",
        ),
    ] {
        let text = format!("[runtime]\nroot = \"{root}\"\nstate = \"{state}\"\n");
        let found = errors(&text);
        assert!(found[0].contains(says), "{found:?}");
    }
    runtime("[runtime]\nroot = \"/a\"\nstate = \"/ab\"\n");
}

#[test]
fn a_second_socket_is_neither_another_of_criscope_nor_a_backend() {
    let with = |socket: &str| format!("[runtime]\ncontainerd_socket = \"{socket}\"\n");
    for (socket, key) in [
        ("/var/run/criscope/criscope.sock", "server.listen"),
        ("/run/criscope/criscope.admin.sock", "admin.socket"),
        ("/run/agent/criscope.sock", "admin.agent_socket"),
        ("unix:///run//c.sock", "backends.containerd.endpoint"),
        ("/run/nri/nri.sock", "runtime.nri.socket_path"),
    ] {
        let backends = format!("{ONE}{BUILTIN}[routing]\ndefault = \"containerd\"\n");
        let agents = "[admin]\nagent_socket = \"/run/agent/criscope.sock\"\n";
        let text = format!(
            "{backends}{agents}[runtime.nri]\nenable = true\n{}",
            with(socket)
        );
        let path = socket.trim_start_matches("unix://");
        let line = text.lines().count();
        assert_eq!(
            errors(&text),
            [format!(
                "c.toml:{line}: runtime.containerd_socket: {path} is {key} already; use another socket"
            )]
        );
    }
    runtime(&with("/run/nri/nri.sock"));
    // The table is not used.
    load(&format!("{ONE}{}", with("/c.sock"))).expect("valid");
    let runtime = runtime(&with("unix:///run/containerd/containerd.sock"));
    let socket = Path::new("/run/containerd/containerd.sock");
    assert_eq!(runtime.containerd_socket.as_deref(), Some(socket));
}

#[test]
fn several_handlers_need_a_default() {
    let two = "[runtime]\n[runtime.handlers.kata]\n[runtime.handlers.gvisor]\n";
    assert_eq!(
        errors(&format!("{BUILTIN}{two}")),
        [
            "c.toml:3: runtime.default_handler: missing; with several handlers and none called \"runc\", one must be the default: \"kata\", \"gvisor\""
        ]
    );
    assert_eq!(
        runtime(&format!("{two}[runtime.handlers.runc]\n")).default_handler,
        None
    );
    runtime("[runtime]\ndefault_handler = \"crun\"\n");
}

#[test]
fn a_reload_names_the_settings_of_the_runtime_that_wait() {
    let old = load(BUILTIN).expect("valid");
    let text = "[runtime]\nstate = \"/s\"\npids_limit = 7\ndefault_handler = \"kata\"\n\
                [runtime.handlers.kata]\n[runtime.images]\nkeep_unused = \"9s\"\nretries = 9\n";
    let new = load(&format!("{BUILTIN}{text}")).expect("valid");
    let diff = reload_diff(&old, &new);
    let restart = ["runtime.images.keep_unused", "runtime.state"];
    assert_eq!(diff.restart, restart);
    let handler = |key: &String| key.starts_with("runtime.handlers.kata.");
    assert!(diff.reloadable.iter().any(handler), "{diff:?}");
    let others: Vec<_> = { diff.reloadable.iter() }
        .filter(|key| !handler(key))
        .collect();
    assert_eq!(
        others,
        [
            "runtime.default_handler",
            "runtime.images.retries",
            "runtime.pids_limit"
        ]
    );
    let after = old.with_reloadable_of(&new);
    let runtime = after.runtime.as_ref().expect("built in");
    assert_eq!(runtime.handlers[0].name, "kata");
    // Below the directory in effect, which is that of the start.
    let root = runtime.handler_root(&runtime.handlers[0]);
    assert!(root.starts_with("/run/criscope"), "{}", root.display());
    assert_eq!(reload_diff(&old, &after).reloadable, diff.reloadable);
    assert!(reload_diff(&old, &after).restart.is_empty());
    assert_ne!(old.fingerprint(), new.fingerprint());
}
