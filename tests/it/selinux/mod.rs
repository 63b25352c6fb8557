//! The module for SELinux: the real compiler accepts it, and each file of criscope gets the type that containerd's has.

use std::fs;
use std::process::Command;

/// Paths of an installation, and their types in container-selinux.
const TYPES: [(&str, &str); 16] = [
    ("/usr/bin/criscope", "container_runtime_exec_t"),
    ("/usr/local/bin/criscope", "container_runtime_exec_t"),
    ("/usr/bin/criscope-shim", "container_runtime_exec_t"),
    (
        "/opt/criscope/bin/criscope-shim",
        "container_runtime_exec_t",
    ),
    ("/etc/criscope/criscope.toml", "container_config_t"),
    ("/var/lib/criscope", "container_var_lib_t"),
    (
        "/var/lib/criscope/containers/c/config.json",
        "container_var_lib_t",
    ),
    ("/var/lib/criscope/images", "container_ro_file_t"),
    (
        "/var/lib/criscope/images/layers/l/bin/sh",
        "container_ro_file_t",
    ),
    (
        "/var/lib/criscope/sandboxes/s/resolv.conf",
        "container_ro_file_t",
    ),
    (
        "/var/lib/criscope/sandboxes/s/record.json",
        "container_var_lib_t",
    ),
    (
        "/var/lib/criscope/containers/c/upper/etc",
        "container_file_t",
    ),
    ("/var/lib/criscope/imagesque", "container_var_lib_t"),
    ("/run/criscope/criscope.sock", "container_var_run_t"),
    ("/var/run/criscope/criscope.sock", "container_var_run_t"),
    ("/run/criscope-of-another", "var_t"),
];

#[test]
fn files_have_the_types_of_container_selinux() {
    let repository = env!("CARGO_MANIFEST_DIR");
    let dir = tempfile::tempdir().expect("dir");
    let contexts = dir.path().join("file_contexts");
    let made = Command::new("secilc")
        .arg("-o")
        .arg(dir.path().join("policy"))
        .arg("-f")
        .arg(&contexts)
        .arg(format!("{repository}/tests/it/selinux/base.cil"))
        .arg(format!("{repository}/deploy/selinux/criscope.cil"))
        .output()
        .expect("secilc");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let contexts = fs::read_to_string(contexts).expect("contexts");
    for (path, expected) in TYPES {
        // The compiler sorts by how specific an expression is: the last match counts.
        let found = contexts.lines().rfind(|line| {
            let expression = line.split_whitespace().next().expect("an expression");
            is_match(expression, path)
        });
        let found = found.and_then(|line| line.split(':').nth(2));
        assert_eq!(found.unwrap_or_default(), expected, "{path}:\n{contexts}");
    }
}

/// As libselinux does: the whole path, by PCRE.
fn is_match(expression: &str, path: &str) -> bool {
    let script = "printf %s \"$2\" | grep -qxP -e \"$1\"";
    let status = Command::new("sh")
        .args(["-c", script, "sh", expression, path])
        .status()
        .expect("grep");
    status.success()
}
