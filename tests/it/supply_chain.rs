//! Dependencies: their licences, sources and duplicates. `deny.toml` has the same rules for cargo-deny, which also
//! checks advisories; these tests need no additional tool and no network.

use spdx::{Expression, Licensee, ParseMode};

use crate::prelude::*;

/// Crates whose types occur in this program's interfaces: two versions would be incompatible, or duplicate something
/// that must be unique.
const ONCE: &[&str] = &[
    "bytes",
    "h2",
    "http",
    "http-body",
    "http-body-util",
    "hyper",
    "hyper-util",
    "opentelemetry",
    "opentelemetry-proto",
    "opentelemetry_sdk",
    "prometheus",
    "prost",
    "prost-types",
    "rustls",
    "tokio",
    "tokio-util",
    "tonic",
    "tonic-prost",
    "tower",
    "tracing",
    "tracing-subscriber",
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn read_toml(name: &str) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    text.parse().unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The packages that are compiled on this platform: workspace members, and all others.
fn packages() -> (Vec<Value>, Vec<Value>) {
    let host = Command::new(env!("CARGO"))
        .args(["-vV"])
        .output()
        .expect("cargo -vV");
    let host = String::from_utf8(host.stdout).expect("text");
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("a host");
    // Packages of other platforms need not be on this machine.
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--offline",
            "--filter-platform",
            host,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    let members = metadata["workspace_members"].as_array().expect("members");
    let (own, foreign): (Vec<_>, Vec<_>) = packages
        .into_iter()
        .partition(|package| members.contains(&package["id"]));
    assert!(foreign.len() > 100, "only {} packages", foreign.len());
    (own, foreign)
}

/// Versions by name of all packages in Cargo.lock, including those for other platforms.
fn locked() -> BTreeMap<String, Vec<String>> {
    let mut versions = BTreeMap::<String, Vec<String>>::new();
    for package in read_toml("Cargo.lock")["package"]
        .as_array()
        .expect("packages")
    {
        let text = |key: &str| package[key].as_str().expect("text").to_owned();
        versions
            .entry(text("name"))
            .or_default()
            .push(text("version"));
    }
    versions
}

/// The version part shared by compatible versions: `1` of `1.2.3`, `0.2` of `0.2.3`.
fn line(version: &str) -> Vec<String> {
    let numbers: Vec<_> = version.split('.').map(str::to_owned).collect();
    let significant = numbers.iter().position(|n| n != "0").unwrap_or_default();
    numbers[..=significant].to_vec()
}

/// Returns whether the allowed licences satisfy a licence expression.
fn is_met(expression: &str, allowed: &[Licensee]) -> bool {
    // Old crates write `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
    let parsed = Expression::parse_mode(expression, ParseMode::LAX);
    parsed.is_ok_and(|parsed| {
        parsed.evaluate(|wanted| allowed.iter().any(|licence| licence.satisfies(wanted)))
    })
}

#[test]
fn every_licence_is_allowed() {
    let deny = read_toml("deny.toml");
    let allowed: Vec<_> = deny["licenses"]["allow"]
        .as_array()
        .expect("licenses.allow")
        .iter()
        .map(|licence| Licensee::parse(licence.as_str().expect("text")).expect("a licence"))
        .collect();
    assert!(!is_met("GPL-3.0-only", &allowed) && !is_met("MIT AND GPL-3.0-only", &allowed));
    let refused: Vec<_> = packages()
        .1
        .iter()
        .filter(|package| {
            !package["license"]
                .as_str()
                .is_some_and(|licence| is_met(licence, &allowed))
        })
        .map(|package| {
            format!(
                "{} {}: {}",
                package["name"], package["version"], package["license"]
            )
        })
        .collect();
    assert!(
        refused.is_empty(),
        "not among licenses.allow of deny.toml:\n{}",
        refused.join("\n")
    );
}

#[test]
fn everything_comes_from_crates_io_with_a_checksum() {
    let lock = read_toml("Cargo.lock");
    let (own, _) = packages();
    for package in lock["package"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        if own.iter().any(|package| package["name"] == name) {
            continue;
        }
        assert_eq!(
            package.get("source").and_then(|s| s.as_str()),
            Some(CRATES_IO),
            "{name}"
        );
        assert!(package.get("checksum").is_some(), "{name} has no checksum");
    }
}

#[test]
fn key_crates_have_one_version() {
    let locked = locked();
    let twice: Vec<_> = ONCE
        .iter()
        .filter_map(|name| locked.get_key_value(*name))
        .filter(|(_, versions)| versions.len() > 1)
        .collect();
    assert!(twice.is_empty(), "more than one version: {twice:?}");
}

#[test]
fn duplicates_are_listed_and_no_entry_is_stale() {
    let deny = read_toml("deny.toml");
    let known: BTreeSet<String> = deny["bans"]["skip"]
        .as_array()
        .expect("bans.skip")
        .iter()
        .map(|skip| skip["crate"].as_str().expect("bans.skip.crate").to_owned())
        .collect();
    // cargo-deny accepts the newest, so the older ones are skipped.
    let mut older = BTreeSet::new();
    for (name, versions) in locked() {
        let mut lines: Vec<_> = versions.iter().map(|version| line(version)).collect();
        lines.sort_by_key(|numbers| {
            numbers
                .iter()
                .map(|n| n.parse().unwrap_or(0))
                .collect::<Vec<u64>>()
        });
        lines.pop();
        older.extend(
            lines
                .iter()
                .map(|numbers| format!("{name}:^{}", numbers.join("."))),
        );
    }
    assert_eq!(
        older, known,
        "older duplicates in Cargo.lock (left) and bans.skip of deny.toml (right)"
    );
}

#[test]
fn the_shim_is_linked_with_its_crate_alone() {
    let program = fs::read(crate::SHIM).expect("criscope-shim");
    let has = |text: &str| program.windows(text.len()).any(|at| at == text.as_bytes());
    // Symbols and debug information name every crate that is linked in.
    assert!(has("seccompiler") && has("prost"), "no names to look for");
    let others = [
        "criscope::",
        "criscope_cri",
        "criscope_runtime",
        "criscope_telemetry",
        "hyper",
        "opentelemetry",
        "serde_json",
        "tokio",
        "tonic",
    ];
    let found: Vec<_> = others.into_iter().filter(|name| has(name)).collect();
    assert!(found.is_empty(), "criscope-shim has code of {found:?}");
}
