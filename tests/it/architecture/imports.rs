//! Which module may import which, and which module may use which crate of the workspace.

use super::source::{File, PRODUCT_CRATES, crate_root, product_files};
use crate::prelude::*;

/// Allowed imports between modules, from the top down: a row may only name rows below it. The exact form of the table of
/// modules in `docs/ARCHITECTURE.md`. Some rows are crates of their own ([`PRODUCT_CRATES`]). Unit tests may import what
/// they need.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("main", &["cli", "version"]),
    // The root of the library: it lists the modules, and re-exports crates of the product.
    (
        "lib",
        &[
            "runtime",
            "lifecycle",
            "pages",
            "telemetry",
            "grpc",
            "uds",
            "settings",
            "call",
            "cri",
            "units",
            "version",
        ],
    ),
    // criscope-shim, which links only the crate of that name.
    ("bin", &[]),
    // The command line.
    (
        "cli",
        &[
            "app",
            "install",
            "smoke",
            "replay",
            "client",
            // The requests of `criscope fault`.
            "proxy::faults",
            "lifecycle",
            "pages",
            "config",
            "settings",
            "call",
            "cri",
            "units",
            "version",
        ],
    ),
    // The composition root; only cli calls it.
    (
        "app",
        &[
            "reload",
            "admin",
            "proxy::stack",
            "proxy::listener",
            "proxy::instrument",
            "proxy::inspect",
            "proxy::router",
            "proxy::backend",
            "proxy::faults",
            "proxy::sessions",
            "runtime",
            "streaming",
            "watchdog",
            "lifecycle",
            "proxy::pod_index",
            "telemetry",
            "tls",
            "grpc",
            "config",
            "settings",
            "call",
            "cri",
            "units",
        ],
    ),
    // Installation on a node: files, units and the kubelet.
    (
        "install",
        // lifecycle: the files that a bypass leaves.
        &[
            "lifecycle",
            "config",
            "client",
            "settings",
            "cri",
            "version",
        ],
    ),
    (
        "reload",
        &[
            "config",
            "proxy::instrument",
            "watchdog",
            "telemetry",
            "settings",
        ],
    ),
    // All sections of the configuration; each is declared by the module that uses it.
    (
        "config",
        &[
            "admin",
            "proxy::listener",
            "proxy::router",
            "proxy::backend",
            "proxy::faults",
            "runtime",
            "streaming",
            "lifecycle",
            "proxy::pod_index",
            "telemetry",
            "settings",
        ],
    ),
    // All metrics; each is declared by the module that counts it.
    (
        "catalogue",
        &[
            "proxy::listener",
            "proxy::instrument",
            "proxy::backend",
            "proxy::faults",
            "proxy::sessions",
            "runtime",
            "streaming",
            "lifecycle",
            "proxy::pod_index",
            "telemetry",
            "tls",
        ],
    ),
    // The admin endpoint. Its limit on connections is shared with the other listeners. client: the kubelet's pod resources API.
    (
        "admin",
        &[
            "client",
            "proxy::instrument",
            "proxy::router",
            "proxy::backend",
            "proxy::faults",
            "watchdog",
            "lifecycle",
            "telemetry",
            "tls",
            "uds",
            "settings",
            "call",
            "cri",
            "units",
            "version",
        ],
    ),
    // The request path. Its layers are in one list; the listener gets the composed service and knows no layer.
    ("proxy", &[]),
    (
        "proxy::stack",
        &[
            "proxy::instrument",
            "proxy::rescue",
            "proxy::inspect",
            "proxy::router",
            "proxy::backend",
            "proxy::faults",
            "proxy::sessions",
            "grpc",
            "call",
        ],
    ),
    // Layers do not depend on each other, except that rescue maps the errors of the backends, and inspect tells them what it
    // read about them.
    (
        "proxy::listener",
        &["telemetry", "grpc", "uds", "settings", "call"],
    ),
    (
        "proxy::instrument",
        &["telemetry", "grpc", "call", "cri", "units"],
    ),
    ("proxy::rescue", &["proxy::backend", "grpc"]),
    (
        "proxy::inspect",
        &["proxy::backend", "proxy::pod_index", "grpc", "call", "cri"],
    ),
    (
        "proxy::faults",
        &["telemetry", "grpc", "settings", "call", "cri", "units"],
    ),
    // The next two are independent of each other: backends are passed in as services.
    (
        "proxy::router",
        &["proxy::pod_index", "grpc", "settings", "call", "cri"],
    ),
    (
        "proxy::backend",
        &[
            "proxy::pod_index",
            "telemetry",
            "grpc",
            "uds",
            "settings",
            "call",
            "cri",
            "units",
        ],
    ),
    // Sessions of other runtimes: URL rewriting and proxying.
    (
        "proxy::sessions",
        &["streaming", "telemetry", "grpc", "uds", "call", "cri"],
    ),
    // The built-in backend.
    ("runtime", &["telemetry", "grpc", "settings", "call", "cri"]),
    // The listener and the observers of exec, attach and port-forward; their protocols are `crates/cri-streaming`.
    (
        "streaming",
        &[
            "call",
            "telemetry",
            "tls",
            "uds",
            "settings",
            "cri",
            "units",
        ],
    ),
    // Certificates and keys of servers.
    ("tls", &["telemetry"]),
    // The canary: a caller of any CRI socket, with typed messages of its own.
    ("smoke", &["client", "pages", "cri", "units"]),
    // Recorded calls against another runtime.
    ("replay", &["client", "lifecycle", "call", "cri", "units"]),
    ("client", &["cri"]),
    // Modules beside the request path, and leaves.
    ("watchdog", &[]),
    // Built from calls that have ended; shown by admin and cli.
    (
        "lifecycle",
        &[
            "pages",
            "telemetry",
            "grpc",
            "uds",
            "settings",
            "call",
            "cri",
            "units",
            "version",
        ],
    ),
    // The pages as data, and the commands that show them: all that kubectl-criscope needs.
    ("pages", &["call", "cri", "units"]),
    ("proxy::pod_index", &["telemetry", "settings", "cri"]),
    // The exporter frames its own gRPC requests.
    (
        "telemetry",
        &["grpc", "uds", "settings", "call", "cri", "version"],
    ),
    ("uds", &["grpc"]),
    ("grpc", &["cri"]),
    // Declaring, reading and documenting settings.
    ("settings", &["cri"]),
    // A call in flight, and its record.
    ("call", &["cri", "units"]),
    ("cri", &["units"]),
    // Durations, sizes and times, and their formats.
    ("units", &[]),
    ("version", &[]),
];

/// The crates of this workspace that know neither the CRI nor the product, and the modules that may use them. No crate can
/// use a module: cargo allows no cycles.
const MAY_USE: &[(&str, &[&str])] = &[
    (
        "cri_streaming",
        &["app", "cli", "proxy::sessions", "runtime", "streaming"],
    ),
    // Of the crates it alone uses the product, for its views and commands, and the daemon does not use it.
    ("criscope_agent", &[]),
    ("criscope_cni", &["runtime"]),
    ("criscope_image", &["app", "runtime"]),
    // The OTLP receiver asks the kernel for the user of a connection.
    ("criscope_linux", &["lifecycle", "runtime"]),
    ("criscope_nri", &["runtime"]),
    ("criscope_shim", &["bin", "runtime"]),
    // The messages of containerd: as its client, and in its place.
    ("criscope_wire", &["lifecycle", "runtime"]),
    // For tests and benchmarks only; unit tests have certificates and programs from it.
    ("criscope_testkit", &["app", "cli", "tls"]),
];

#[test]
fn the_table_of_imports_is_ordered_top_down() {
    for (row, (module, imports)) in MAY_IMPORT.iter().enumerate() {
        let below: Vec<_> = MAY_IMPORT[row + 1..].iter().map(|(name, _)| name).collect();
        for import in *imports {
            assert!(
                below.contains(&import),
                "{module} may not import {import}: it does not stand below"
            );
        }
    }
}

#[test]
fn the_table_of_imports_names_every_module() {
    let there: BTreeSet<_> = product_files().iter().map(File::module).collect();
    let listed: BTreeSet<_> = MAY_IMPORT
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(listed.len(), MAY_IMPORT.len(), "a module is listed twice");
    assert_eq!(
        there, listed,
        "modules of src/ (left) and rows of the table (right)"
    );
}

#[test]
fn imports_follow_the_table() {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for file in product_files() {
        let name = file.module();
        let Some((module, allowed)) = MAY_IMPORT.iter().find(|(row, _)| *row == name) else {
            continue;
        };
        for (import, place) in file.imports() {
            used.insert((*module, import.clone()));
            if !allowed.contains(&import.as_str()) {
                problems.push(format!("{place}: {module} may not import {import}"));
            }
        }
    }
    for (module, allowed) in MAY_IMPORT {
        for import in *allowed {
            if !used.contains(&(*module, (*import).to_owned())) {
                problems.push(format!(
                    "{module} does not import {import}, which the table allows"
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn crates_are_used_only_by_the_listed_modules() {
    let crates = fs::read_dir(crate_root().join("crates")).expect("crates");
    let mut crates: Vec<_> = crates
        .map(|entry| entry.expect("an entry").path().join("Cargo.toml"))
        .map(|path| read_package_name(&path).replace('-', "_"))
        .collect();
    crates.sort();
    let libraries = MAY_USE.iter().map(|(name, _)| *name);
    let product = PRODUCT_CRATES.iter().map(|one| one.name);
    let mut listed: Vec<_> = libraries.chain(product).collect();
    listed.sort_unstable();
    assert_eq!(crates, listed, "crates/ (left) and rows (right)");

    let files = product_files();
    for (name, allowed) in MAY_USE {
        let users: BTreeSet<_> = files
            .iter()
            .filter(|file| !file.idents(name).is_empty())
            .map(File::module)
            .collect();
        let users: Vec<_> = users.iter().map(String::as_str).collect();
        assert_eq!(
            users, *allowed,
            "modules that name {name} (left) and listed"
        );
    }
}

fn read_package_name(manifest: &Path) -> String {
    let text =
        fs::read_to_string(manifest).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
    let table: toml::Table = text.parse().expect("a manifest");
    table["package"]["name"]
        .as_str()
        .expect("a name")
        .to_owned()
}

#[test]
fn the_crate_docs_mention_every_module() {
    let lib = fs::read_to_string(crate_root().join("src/lib.rs")).expect("src/lib.rs");
    let top = |name: &&&str| !["main", "lib", "bin"].contains(*name) && !name.contains("::");
    for module in MAY_IMPORT.iter().map(|(name, _)| name).filter(top) {
        assert!(
            lib.contains(&format!("[`{module}`]")),
            "src/lib.rs does not mention {module}"
        );
    }
}
