//! Rules of the repository that can be checked: which module may import which, file length, where `unsafe` may occur,
//! and that the invariants have tests.

mod imports;
mod invariants;
mod metrics;
mod settings;
mod source;
mod systems;
mod telemetry;

use std::fmt::Debug;
use std::marker::PhantomData;

use proc_macro2::TokenTree;

use self::source::{File, Place, all_files, crate_root, product_files, source_files, test_modules};
use crate::prelude::*;

/// Maximum lines of a Rust file, tests and benchmarks included.
const MAX_LINES: usize = 450;

/// The files in which `unsafe` may occur, and how often.
const UNSAFE: &[(&str, usize)] = &[
    ("crates/grpc/src/uds/stream.rs", 1),
    ("crates/linux/src/idmap.rs", 1),
    ("crates/nri/src/launch.rs", 2),
    ("crates/shim/src/signal.rs", 3),
    ("crates/shim/src/spawn.rs", 2),
    ("src/app/heap.rs", 2),
    ("src/proxy/listener/socket.rs", 1),
];

/// Modules that may use tonic's transport: those that call a runtime themselves, never the request path
/// (`docs/adr/0010-calls-pass-through-undecoded.md`).
const TONIC_TRANSPORT: &[&str] = &["cli", "client", "replay", "smoke"];

#[test]
fn files_stay_small() {
    let long: Vec<_> = all_files()
        .into_iter()
        .map(|file| {
            let lines = file.text.lines().count();
            (file.path, lines)
        })
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines: {long:?}");
}

#[test]
fn every_file_states_its_purpose() {
    let silent: Vec<_> = all_files()
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

/// Measured durations are formatted by `crates/cri/src/units.rs`. Limits, which are round, are shown as configured.
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
    assert_eq!(found, ["crates/cri/src/units.rs"]);
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

/// Users set levels by the targets of log lines, which would otherwise change with the crate of a module.
#[test]
fn log_lines_of_crates_of_the_product_name_their_target() {
    let files = product_files();
    let tests = test_modules(&files);
    let mut unnamed = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with("src/")) {
        file.walk_product(&tests, &mut |tokens| {
            let [
                TokenTree::Ident(word),
                TokenTree::Punct(bang),
                TokenTree::Group(group),
                ..,
            ] = tokens
            else {
                return;
            };
            if bang.as_char() == '!' && EVENTS.contains(&word.to_string().as_str()) {
                let text = group.stream().to_string();
                if !text.starts_with("target : \"criscope::") {
                    unnamed.push(format!("{}:{}", file.path, word.span().start().line));
                }
            }
        });
    }
    assert!(
        unnamed.is_empty(),
        "no `target: \"criscope::...\"`: {unnamed:?}"
    );
}

/// Macros of `tracing`.
const EVENTS: &[&str] = &[
    "debug",
    "debug_span",
    "error",
    "error_span",
    "event",
    "info",
    "info_span",
    "trace",
    "trace_span",
    "warn",
    "warn_span",
];

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
    let build = fs::read_to_string(crate_root().join("crates/cri/build.rs")).expect("build.rs");
    assert!(
        build.contains(".skip_debug([\".\"])"),
        "crates/cri/build.rs no longer omits Debug"
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
