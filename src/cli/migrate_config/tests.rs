//! Files as nodes have them.

use std::collections::BTreeSet;
use std::fs;

use super::*;

fn migrated(from: SourceRuntime, files: &[(&str, &str)]) -> (String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    }
    let first = dir.path().join(files[0].0);
    let table = from.table().expect("a table");
    let migration = ConfigMigration::new(from.settings(&first).expect("readable"), &table);
    let text = migration.file();
    Config::from_text("migrated", &text, &FlagOverrides::default()).expect("valid");
    (text, migration.report.join("\n"))
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|found| found.contains(line)),
            "{line}\n---\n{text}"
        );
    }
}

const V2: &str = r#"
version = 2
imports = ["conf.d/*.toml"]
[debug]
level = "info"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.9"
enable_selinux = true
drain_exec_sync_io_timeout = "1m30s"
unset_seccomp_profile = "runtime/default"
stats_collect_period = 15
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
snapshotter = "stargz"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
privileged_without_host_devices = true
cgroup_writable = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata.options]
ConfigPath = "/opt/kata/qemu.toml"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.wasm]
runtime_type = "io.containerd.wasmtime.v1"
runtime_path = "/opt/wasm/containerd-shim-wasmtime-v1"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
endpoint = ["https://mirror.example"]
[plugins."io.containerd.grpc.v1.cri".registry.configs."mirror.example".auth]
username = "user"
password = "hunter2"
[plugins."io.containerd.grpc.v1.cri".registry.configs."mirror.example".tls]
insecure_skip_verify = true
"#;

#[test]
fn containerd_version_2_with_imports() {
    let nri = "version = 2\n[plugins.\"io.containerd.service.v1.tasks-service\"]\nblockio_config_file = \"/etc/b.yaml\"\nrdt_config_file = \"/etc/r.yaml\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nignore_rdt_not_enabled_errors = true\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = false\nsocket_path = \"/run/other.sock\"\n\
        plugin_request_timeout = \"3s\"\n[plugins.\"io.containerd.nri.v1.nri\".default_validator]\nenable = true\n";
    let nvidia = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\nruntime_type = \"io.containerd.runc.v2\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/bin/nvidia-container-runtime\"\n";
    let (text, report) = migrated(
        SourceRuntime::Containerd,
        &[
            ("config.toml", V2),
            ("conf.d/98-nri.toml", nri),
            ("conf.d/99-nvidia.toml", nvidia),
        ],
    );
    has(
        &text,
        &[
            "[runtime.handlers.runc]",
            "systemd_cgroup = true",
            "[runtime.handlers.kata]",
            "runtime_type = \"io.containerd.kata.v2\"",
            "config_path = \"/opt/kata/qemu.toml\"",
            "runtime_type = \"/opt/wasm/containerd-shim-wasmtime-v1\"",
            "[runtime.handlers.nvidia]",
            "path = \"/usr/bin/nvidia-container-runtime\"",
            "default_handler = \"nvidia\"",
            "drain_exec_sync_io_timeout = \"90s\"",
            "stats_collect_period = \"15s\"",
            "unset_seccomp_profile = \"runtime/default\"",
            "bin_dirs = [\"/opt/cni/bin\"]",
            "enable_selinux = true",
            "blockio_config_file = \"/etc/b.yaml\"",
            "rdt_config_file = \"/etc/r.yaml\"",
            "ignore_rdt_not_enabled_errors = true",
            "[runtime.nri]",
            "enable = true",
            "socket_path = \"/run/other.sock\"",
            "plugin_request_timeout = \"3s\"",
        ],
    );
    has(
        &report,
        &[
            "cri.containerd.snapshotter: ",
            "nri.default_validator.enable: ",
            "registry docker.io: write docker.io/hosts.toml",
            "[host.\"https://mirror.example\"]",
            "skip_verify = true",
            "auth.password: credentials are not taken over",
            "default of runtime.disable_hugetlb_controller: ",
        ],
    );
    assert!(!report.contains("sandbox_image"), "{report}");
    for output in [&text, &report] {
        assert!(!output.contains("hunter2"), "{output}");
    }
}

#[test]
fn containerd_versions_1_and_3_have_the_same_meaning() {
    let one = "[plugins.cri]\nmax_concurrent_downloads = 5\n[plugins.cri.containerd.runtimes.crun]\n\
        runtime_type = \"io.containerd.runc.v2\"\n[plugins.cri.containerd.runtimes.crun.options]\nBinaryName = \"/usr/bin/crun\"\n\
        [plugins.cri.containerd]\ndefault_runtime_name = \"crun\"\n";
    let three = "version = 3\n[plugins.'io.containerd.cri.v1.images']\nmax_concurrent_downloads = 5\n\
        [plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = \"crun\"\n\
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]\nruntime_type = \"io.containerd.runc.v2\"\n\
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]\nBinaryName = \"/usr/bin/crun\"\n";
    let [one, three] =
        [one, three].map(|text| migrated(SourceRuntime::Containerd, &[("c.toml", text)]));
    assert_eq!(one, three);
    has(
        &one.0,
        &["max_concurrent_downloads = 5", "path = \"/usr/bin/crun\""],
    );
}

#[test]
fn crio_with_drop_in_files() {
    let main = "[crio.runtime]\ndefault_runtime = \"runc\"\ncgroup_manager = \"cgroupfs\"\npids_limit = -1\n\
        default_sysctls = [\"net.ipv4.ping_group_range=0 0\"]\nhooks_dir = [\"/etc/hooks\"]\n\
        blockio_config_file = \"/etc/b.yaml\"\nblockio_reload = true\nrdt_config_file = \"/etc/r.yaml\"\n\
        [crio.runtime.runtimes.runc]\nruntime_path = \"/usr/bin/runc\"\nruntime_type = \"oci\"\n\
        [crio.runtime.runtimes.kata]\nruntime_path = \"/opt/kata/bin/containerd-shim-kata-v2\"\nruntime_type = \"vm\"\n\
        runtime_config_path = \"/opt/kata/clh.toml\"\n\
        [crio.runtime.runtimes.odd]\nruntime_path = \"/usr/bin/runc\"\nruntime_type = \"pod\"\n\
        [crio.image]\npinned_images = [\"quay.io/a/*\"]\nimage_volumes = \"ignore\"\nshort_name_mode = \"disabled\"\n\
        signature_policy = \"/etc/containers/policy.json\"\nsignature_policy_dir = \"/etc/crio/policies\"\n";
    let drop_in = "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n\
        [crio.network]\nplugin_dirs = [\"/opt/cni/bin\"]\n";
    let (text, report) = migrated(
        SourceRuntime::Crio,
        &[("crio.conf", main), ("crio.conf.d/10-crun.conf", drop_in)],
    );
    has(
        &text,
        &[
            "default_handler = \"crun\"",
            "cgroup_driver = \"cgroupfs\"",
            "pids_limit = 0",
            "ignore_image_defined_volumes = true",
            "pinned_images = [\"quay.io/a/*\"]",
            "signature_policy = \"/etc/containers/policy.json\"",
            "signature_policy_dir = \"/etc/crio/policies\"",
            "bin_dirs = [\"/opt/cni/bin\"]",
            "hooks_dir = [\"/etc/hooks\"]",
            "blockio_config_file = \"/etc/b.yaml\"",
            "rdt_config_file = \"/etc/r.yaml\"",
            "path = \"/usr/bin/runc\"",
            "runtime_type = \"/opt/kata/bin/containerd-shim-kata-v2\"",
            "config_path = \"/opt/kata/clh.toml\"",
        ],
    );
    assert!(!text.contains("handlers.odd"), "{text}");
    has(
        &report,
        &[
            "handler odd has an unknown type (pod) and is left out",
            "crio.runtime.hooks_dir: runtime.hooks_dir; only schema 1.0.0",
            "default of runtime.default_capabilities: ",
            "default of runtime.images.registries_conf: none here; /etc/containers/registries.conf there",
            "crio.image.short_name_mode: ",
        ],
    );
}

#[test]
fn what_criscope_refuses_is_left_out_and_reported() {
    let text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nmax_concurrent_downloads = 5000\nunknown_to_all = 1\n";
    let (text, report) = migrated(SourceRuntime::Containerd, &[("c.toml", text)]);
    assert!(!text.contains("5000"), "{text}");
    has(
        &report,
        &[
            "runtime.images.max_concurrent_downloads: not taken over: ",
            "cri.unknown_to_all: no counterpart",
        ],
    );
}

#[test]
fn a_password_in_a_broken_file_is_not_quoted() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("c.toml");
    fs::write(&path, "password = \"hunter2\" x\n").expect("written");
    let error = source::containerd(&path).expect_err("refused").to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

/// The default configuration of containerd 1.4 and later, with what imgcrypt's documentation adds.
#[test]
fn the_decoders_of_encrypted_layers_are_taken_over() {
    let text = r#"
version = 2
[stream_processors."io.containerd.ocicrypt.decoder.v1.tar.gzip"]
accepts = ["application/vnd.oci.image.layer.v1.tar+gzip+encrypted"]
returns = "application/vnd.oci.image.layer.v1.tar+gzip"
path = "ctd-decoder"
args = ["--decryption-keys-path", "/etc/containerd/ocicrypt/keys"]
env = ["OCICRYPT_KEYPROVIDER_CONFIG=/etc/containerd/ocicrypt/ocicrypt_keyprovider.conf"]
[stream_processors.other]
path = "/usr/bin/other"
args = ["--flag"]
[plugins."io.containerd.grpc.v1.cri".image_decryption]
key_model = "node"
"#;
    let (file, report) = migrated(SourceRuntime::Containerd, &[("config.toml", text)]);
    has(
        &file,
        &["keyprovider_config = \"/etc/containerd/ocicrypt/ocicrypt_keyprovider.conf\""],
    );
    has(
        &report,
        &[
            "private keys are not supported",
            "stream_processors.other.path: ",
        ],
    );
    assert!(!report.contains("key_model"), "{report}");
    let crio = "[crio.runtime]\ndecryption_keys_path = \"/etc/crio/keys/\"\n";
    let (file, report) = migrated(SourceRuntime::Crio, &[("crio.conf", crio)]);
    assert!(!file.contains("decryption_keys_path"), "{file}");
    has(&report, &["RUSTSEC-2023-0071"]);
}

#[test]
fn the_page_on_migration_has_every_row() {
    let page = include_str!("../../../docs/MIGRATION.md");
    // Every other piece is inside code marks.
    let codes: BTreeSet<_> = page.split('`').skip(1).step_by(2).collect();
    let both = [SourceRuntime::Containerd, SourceRuntime::Crio];
    let tables = both.map(|runtime| runtime.table().expect("a table"));
    for row in tables.iter().flat_map(|table| &table.rows) {
        // A row for the keys of a table may stand there by the name of the table.
        let parts: Vec<_> = row.from.split('.').collect();
        let names = parts.iter().rev().map(|part| part.trim_matches('*'));
        let mut names = names
            .filter(|name| !name.is_empty() && !matches!(*name, "cri" | "crio" | "runtime"))
            .take(2);
        let is_there = names.any(|name| {
            codes.iter().any(|code| {
                let last = code.rsplit('.').next().unwrap_or(code);
                code.contains(name) || (last.len() > 1 && fits(last, name))
            })
        });
        assert!(is_there, "{} is not on the page", row.from);
        if let Some(key) = &row.to {
            assert!(codes.contains(&**key), "{key} is not on the page");
        }
    }
}
