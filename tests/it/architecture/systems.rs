//! The kubectl plugin and its crates compile on macOS and Windows too, where no test builds them.

use super::source::{crate_root, files_under};
use crate::prelude::*;

/// What only Unix or Linux has. `unix` stands for `std::os::unix` and `tokio::signal::unix`.
const UNIX_NAMES: &[&str] = &["unix", "linux", "nix", "rustix", "libc"];

/// Files that have code for each system, behind `cfg`.
const HAVE_A_FORM_FOR_EACH_SYSTEM: &[&str] = &[
    "crates/agent/src/plugin/capture.rs",
    "crates/pages/src/terminal/signals.rs",
];

/// The crate of the protocol is all that the plugin has of the daemon, besides the pages.
const MAY_DEPEND_ON: &[&str] = &["criscope-cri", "criscope-pages"];

#[test]
fn the_plugin_uses_nothing_that_only_unix_has() {
    let mut found = BTreeSet::new();
    let folders = ["crates/pages/src", "crates/agent/src/plugin"];
    for file in folders.into_iter().flat_map(files_under) {
        let places = UNIX_NAMES.iter().flat_map(|name| file.idents(name));
        if places.count() > 0 {
            found.insert(file.path);
        }
    }
    let expected: BTreeSet<_> = HAVE_A_FORM_FOR_EACH_SYSTEM
        .iter()
        .map(|path| (*path).to_owned())
        .collect();
    assert_eq!(
        found, expected,
        "files with names of Unix (left) and listed"
    );
}

#[test]
fn the_plugin_does_not_link_the_daemon() {
    for name in ["agent", "cri", "pages"] {
        let path = crate_root().join("crates").join(name).join("Cargo.toml");
        let text = fs::read_to_string(&path).expect("a manifest");
        let table: toml::Table = text.parse().expect("a manifest");
        let dependencies = table["dependencies"].as_table().expect("dependencies");
        let of_criscope = dependencies
            .keys()
            .filter(|name| name.starts_with("criscope"));
        for dependency in of_criscope {
            assert!(
                MAY_DEPEND_ON.contains(&dependency.as_str()),
                "{name} depends on {dependency} on every system"
            );
        }
        for dependency in UNIX_NAMES {
            assert!(
                !dependencies.contains_key(*dependency),
                "{name} depends on {dependency}"
            );
        }
    }
}
