//! The module for SELinux: the real compiler accepts it, and each file of criscope gets the type that containerd's has.

use crate::prelude::*;

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
    // Below a mount with the label of the pod; without its categories a container could read the layers of others.
    (
        "/var/lib/criscope/containers/c/upper/etc",
        "container_var_lib_t",
    ),
    ("/var/lib/criscope/imagesque", "container_var_lib_t"),
    ("/run/criscope/criscope.sock", "container_var_run_t"),
    ("/var/run/criscope/criscope.sock", "container_var_run_t"),
    ("/run/criscope-of-another", "var_t"),
];

#[test]
fn files_have_the_types_of_container_selinux() {
    let dir = tempfile::tempdir().expect("dir");
    let contexts = dir.path().join("file_contexts");
    compile(dir.path(), "").expect("compiles");
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

/// The compiler refuses a second rule for the same directory with another type, which shows that there is a first one.
#[test]
fn the_store_of_images_needs_no_restorecon_after_the_first_start() {
    let dir = tempfile::tempdir().expect("dir");
    let rule = |name: &str| {
        format!("(typetransition container_runtime_t container_var_lib_t dir \"{name}\" var_t)")
    };
    let error = compile(dir.path(), &rule("images")).expect_err("it has a rule");
    assert!(error.contains("Conflicting"), "{error}");
    compile(dir.path(), &rule("another")).expect("compiles");
}

/// Compiles the module with the policy it needs and further rules; the labels of files are written to `file_contexts`.
fn compile(dir: &Path, rules: &str) -> Result<(), String> {
    let repository = env!("CARGO_MANIFEST_DIR");
    let more = dir.join("more.cil");
    fs::write(&more, rules).expect("write");
    let made = Command::new("secilc")
        .arg("-o")
        .arg(dir.join("policy"))
        .arg("-f")
        .arg(dir.join("file_contexts"))
        .arg(format!("{repository}/tests/it/selinux/base.cil"))
        .arg(format!("{repository}/deploy/selinux/criscope.cil"))
        .arg(more)
        .output()
        .expect("secilc");
    let errors = String::from_utf8_lossy(&made.stderr).into_owned();
    made.status.success().then_some(()).ok_or(errors)
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
