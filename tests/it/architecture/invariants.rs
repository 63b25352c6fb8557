//! Each promise of `src/lib.rs` stands in the table of `docs/ARCHITECTURE.md` with tests that exist.

use std::collections::BTreeMap;
use std::fs;

use super::source::{File, crate_root, files_under};

/// The numbered promises: `1. **Byte-exact.**` gives `(1, "Byte-exact")`.
fn promises(lib: &str) -> Vec<(u32, String)> {
    lib.lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter_map(|line| {
            let (number, rest) = line.split_once(". **")?;
            let (title, _) = rest.split_once(".**")?;
            Some((number.parse().ok()?, title.to_owned()))
        })
        .collect()
}

/// The rows of the table: `| 1. Byte-exact | `src/a.rs::b`, ... |` gives `((1, "Byte-exact"), ["src/a.rs::b", ...])`.
fn rows(page: &str) -> Vec<((u32, String), Vec<String>)> {
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let (number, title) = cells.next()?.split_once(". ")?;
            let tests = cells
                .next()?
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            Some(((number.parse().ok()?, title.to_owned()), tests))
        })
        .collect()
}

#[test]
fn every_invariant_has_tests_that_exist() {
    let read = |path: &str| {
        fs::read_to_string(crate_root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let promises = promises(&read("src/lib.rs"));
    assert!(
        !promises.is_empty(),
        "src/lib.rs has no numbered invariants"
    );
    let rows = rows(&read("docs/ARCHITECTURE.md"));
    let listed: Vec<_> = rows.iter().map(|(promise, _)| promise.clone()).collect();
    assert_eq!(
        promises, listed,
        "invariants of src/lib.rs (left) and rows of docs/ARCHITECTURE.md (right)"
    );

    let files: BTreeMap<String, File> = [files_under("src"), files_under("tests")]
        .into_iter()
        .flatten()
        .map(|file| (file.path.clone(), file))
        .collect();
    for ((number, title), tests) in rows {
        assert!(!tests.is_empty(), "no test for {number}. {title}");
        for test in tests {
            let (path, name) = test
                .split_once("::")
                .unwrap_or_else(|| panic!("{test}: not `file::test`"));
            let file = files
                .get(path)
                .unwrap_or_else(|| panic!("{test}: there is no such file"));
            assert!(file.tests().contains(name), "{test}: there is no such test");
        }
    }
}
