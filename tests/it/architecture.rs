//! Rules of the repository that can be checked: which module may import which, file length, where `unsafe` may occur,
//! and that the invariants have tests.

mod invariants;
mod metrics;
mod source;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::marker::PhantomData;
use std::path::Path;

use criscope::cri::v1;

use self::source::{File, Place, crate_root, product_files, source_files};

/// Allowed imports between modules, from the top down: a row may only name rows below it. The exact form of the section
/// "Code map" of `docs/ARCHITECTURE.md`. Unit tests may import what they need.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("main", &["cli", "version"]),
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
        ],
    ),
    // Installation on a node: files, units and the kubelet.
    (
        "install",
        &["config", "client", "settings", "cri", "version"],
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
    // The admin endpoint. Its limit on connections is shared with the other listeners.
    (
        "admin",
        &[
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
            "proxy::pod_index",
            "proxy::backend",
            "proxy::faults",
            "proxy::sessions",
            "grpc",
            "call",
        ],
    ),
    // Layers do not depend on each other, except that rescue maps the errors of the backends.
    (
        "proxy::listener",
        &["telemetry", "grpc", "uds", "settings", "call"],
    ),
    ("proxy::instrument", &["telemetry", "grpc", "call", "cri"]),
    ("proxy::rescue", &["proxy::backend", "grpc"]),
    (
        "proxy::inspect",
        &["proxy::pod_index", "grpc", "call", "cri"],
    ),
    (
        "proxy::faults",
        &["telemetry", "grpc", "settings", "call", "cri"],
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
    (
        "runtime",
        &["streaming", "telemetry", "grpc", "settings", "call", "cri"],
    ),
    // The listener and the observers of exec, attach and port-forward; their protocols are `crates/cri-streaming`.
    (
        "streaming",
        &["call", "telemetry", "tls", "uds", "settings", "cri"],
    ),
    // Certificates and keys of servers.
    ("tls", &["telemetry"]),
    // The canary: a caller of any CRI socket, with typed messages of its own.
    ("smoke", &["client", "cri", "units"]),
    // Recorded calls against another runtime.
    ("replay", &["client", "lifecycle", "call", "cri", "units"]),
    ("client", &["cri"]),
    // Modules beside the request path, and leaves.
    ("watchdog", &[]),
    // Built from calls that have ended; shown by admin and cli.
    (
        "lifecycle",
        &[
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
    ("proxy::pod_index", &["telemetry", "settings", "cri"]),
    // The exporter frames its own gRPC requests.
    ("telemetry", &["grpc", "settings", "call", "cri", "version"]),
    ("grpc", &["cri"]),
    ("uds", &[]),
    // Declaring, reading and documenting settings.
    ("settings", &["cri"]),
    // A call in flight, and its record.
    ("call", &["cri"]),
    ("cri", &[]),
    // Formatting of durations, sizes and times.
    ("units", &[]),
    ("version", &[]),
];

/// The crates of this workspace, and the modules that may use them. No crate can use a module: cargo allows no cycles.
const MAY_USE: &[(&str, &[&str])] = &[
    (
        "cri_streaming",
        &["app", "cli", "proxy::sessions", "runtime", "streaming"],
    ),
    // Of the crates it alone uses the product, for its views and commands, and the daemon does not use it.
    ("criscope_agent", &[]),
    ("criscope_cni", &["app", "runtime"]),
    ("criscope_image", &["app", "runtime"]),
    ("criscope_linux", &["runtime"]),
    ("criscope_nri", &["runtime"]),
    ("criscope_shim", &["bin", "runtime"]),
    // For tests and benchmarks only; unit tests of tls have certificates from it.
    ("criscope_testkit", &["tls"]),
];

/// Maximum lines of a file under `src` or `crates`, tests included.
const MAX_LINES: usize = 450;

/// The files in which `unsafe` may occur, and how often.
const UNSAFE: &[(&str, usize)] = &[
    ("crates/linux/src/idmap.rs", 1),
    ("crates/nri/src/launch.rs", 2),
    ("crates/shim/src/signal.rs", 3),
    ("crates/shim/src/spawn.rs", 2),
    ("src/app/heap.rs", 2),
    ("src/proxy/listener/socket.rs", 1),
    ("src/uds/stream.rs", 1),
];

/// Modules that may use tonic's transport: those that call a runtime themselves, never the request path
/// (`docs/adr/0010-calls-pass-through-undecoded.md`).
const TONIC_TRANSPORT: &[&str] = &["cli", "client", "replay", "smoke"];

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
        let room = file.module();
        let Some((module, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
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
    let listed: Vec<_> = MAY_USE.iter().map(|(name, _)| *name).collect();
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
    let top = |name: &&&str| !["main", "bin"].contains(*name) && !name.contains("::");
    for module in MAY_IMPORT.iter().map(|(name, _)| name).filter(top) {
        assert!(
            lib.contains(&format!("[`{module}`]")),
            "src/lib.rs does not mention {module}"
        );
    }
}

#[test]
fn files_stay_small() {
    let long: Vec<_> = source_files()
        .iter()
        .map(|file| (file.path.clone(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines: {long:?}");
}

#[test]
fn every_file_states_its_purpose() {
    let silent: Vec<_> = source_files()
        .into_iter()
        .filter(|f| !f.text.starts_with("//! "))
        .map(|f| f.path)
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top: {silent:?}");
}

#[test]
fn unsafe_occurs_only_in_listed_files_with_a_safety_comment() {
    let mut found = Vec::new();
    for file in source_files() {
        let places = file.idents("unsafe");
        for place in &places {
            assert!(
                has_safety_comment(&file, place),
                "{place}: no `// SAFETY:` comment directly above"
            );
        }
        if !places.is_empty() {
            found.push((file.path, places.len()));
        }
    }
    let found: Vec<_> = found
        .iter()
        .map(|(path, count)| (path.as_str(), *count))
        .collect();
    assert_eq!(
        found, UNSAFE,
        "files with `unsafe` (left) and those listed (right)"
    );
}

/// Measured durations are formatted by `src/units.rs`. Limits, which are round, are shown as configured.
#[test]
fn durations_are_written_in_one_form() {
    let units = ["ms", "s", "us", "min", "m", "h"];
    let is_one = |rest: &str| {
        let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
        units.contains(&word.as_str())
    };
    // A number with decimal places, followed by its unit.
    let has_one = |text: &str| {
        (0..=3).any(|digits| {
            let number = format!(".{digits}}} ");
            text.split(&number).skip(1).any(is_one)
        })
    };
    let found: Vec<_> = source_files()
        .into_iter()
        .filter(|file| has_one(&file.text))
        .map(|file| file.path)
        .collect();
    assert_eq!(found, ["src/units.rs"]);
}

/// Returns whether the comment lines directly above contain `SAFETY:`.
fn has_safety_comment(file: &File, place: &Place) -> bool {
    let above: Vec<_> = file.text.lines().take(place.line - 1).collect();
    let mut comment = above
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("//"));
    comment.any(|line| line.starts_with("// SAFETY: "))
}

#[test]
fn the_request_path_does_not_use_tonics_transport() {
    let files = product_files().into_iter();
    let found: Vec<_> = files
        .filter(|file| !TONIC_TRANSPORT.contains(&file.module().as_str()))
        .flat_map(|file| file.paths("tonic", "transport"))
        .map(|place| place.to_string())
        .collect();
    assert!(
        found.is_empty(),
        "tonic::transport has timeouts and header rules of its own: {found:?}"
    );
}

/// `Probe::<T>::DEBUG` is the inherent constant if `T` is [`Debug`], and that of [`Otherwise`] if not.
struct Probe<T>(PhantomData<T>);

trait Otherwise {
    const DEBUG: bool = false;
}

impl<T> Otherwise for Probe<T> {}

impl<T: Debug> Probe<T> {
    const DEBUG: bool = true;
}

#[test]
fn no_message_can_be_printed() {
    // The generator omits Debug for all messages, including future ones.
    let build = fs::read_to_string(crate_root().join("build.rs")).expect("build.rs");
    assert!(
        build.contains(".skip_debug([\".\"])"),
        "build.rs no longer omits Debug"
    );
    // Messages that carry secrets have no hand-written Debug either.
    let secret = [
        Probe::<v1::AuthConfig>::DEBUG,
        Probe::<v1::PullImageRequest>::DEBUG,
        Probe::<v1::KeyValue>::DEBUG,
        Probe::<v1::ContainerConfig>::DEBUG,
        Probe::<v1::CreateContainerRequest>::DEBUG,
        Probe::<v1::PodSandboxConfig>::DEBUG,
        Probe::<v1::ExecSyncRequest>::DEBUG,
        Probe::<v1::ExecSyncResponse>::DEBUG,
        Probe::<v1::StatusResponse>::DEBUG,
        Probe::<v1::ContainerStatusResponse>::DEBUG,
    ];
    assert_eq!(secret, [false; 10]);
    // The probe works.
    const { assert!(Probe::<String>::DEBUG) };
}
