//! Each invariant of `src/lib.rs` is in the table of `docs/ARCHITECTURE.md` with tests that exist, and each row of
//! `docs/THREATS.md` names tests that exist.

use super::source::{File, crate_root, files_under, source_files};
use crate::prelude::*;

/// The numbered invariants: `1. **Byte-exact.**` becomes `(1, "Byte-exact")`.
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

    let tests = Tests::read();
    for ((number, title), names) in rows {
        assert!(!names.is_empty(), "no test for {number}. {title}");
        names.iter().for_each(|name| tests.assert_exists(name));
    }
}

#[test]
fn every_threat_has_tests_that_exist() {
    let path = crate_root().join("docs/THREATS.md");
    let page = fs::read_to_string(&path).expect("docs/THREATS.md");
    let tests = Tests::read();
    let mut rows = 0;
    for table in page
        .split("\n\n")
        .filter(|part| part.starts_with("| threat |"))
    {
        // Skip the table's header and separator.
        for row in table.lines().skip(2) {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
            let [threat, _bound, shown_by] = cells[..] else {
                panic!("not a row of three columns: {row}");
            };
            let names: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "no test for: {threat}");
            names.into_iter().for_each(|name| tests.assert_exists(name));
            rows += 1;
        }
    }
    assert!(rows > 0, "docs/THREATS.md has no rows");
}

/// How the last cell of an advisory begins.
const VERDICTS: [&str; 3] = [
    "cannot happen because",
    "closed by",
    "not applicable because",
];

#[test]
fn every_advisory_has_a_verdict_and_names_tests_that_exist() {
    let path = crate_root().join("docs/THREATS.md");
    let page = fs::read_to_string(&path).expect("docs/THREATS.md");
    let tests = Tests::read();
    let mut rows = 0;
    let tables = page.split("\n\n");
    for table in tables.filter(|part| part.starts_with("| advisory |")) {
        for row in table.lines().skip(2) {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
            let [_advisory, _mechanism, verdict] = cells[..] else {
                panic!("not a row of three columns: {row}");
            };
            let has_verdict = VERDICTS.iter().any(|begin| verdict.starts_with(begin));
            assert!(has_verdict, "no verdict: {row}");
            let quoted = verdict.split('`').skip(1).step_by(2);
            let names: Vec<_> = quoted.filter(|text| text.contains(".rs::")).collect();
            let is_closed = verdict.starts_with("closed by");
            assert!(!is_closed || !names.is_empty(), "no test: {row}");
            names.into_iter().for_each(|name| tests.assert_exists(name));
            rows += 1;
        }
    }
    assert!(rows > 100, "{rows} advisories");
}

/// The tests of the workspace, by file.
struct Tests(BTreeMap<String, File>);

impl Tests {
    fn read() -> Self {
        let files = [source_files(), files_under("tests")];
        let files = files.into_iter().flatten();
        Self(files.map(|file| (file.path.clone(), file)).collect())
    }

    /// Fails unless `path::name` is a test.
    fn assert_exists(&self, test: &str) {
        let (path, name) = test
            .split_once("::")
            .unwrap_or_else(|| panic!("{test}: not `file::test`"));
        let file = self
            .0
            .get(path)
            .unwrap_or_else(|| panic!("{test}: there is no such file"));
        assert!(file.tests().contains(name), "{test}: there is no such test");
    }
}
