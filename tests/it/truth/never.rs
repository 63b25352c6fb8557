//! Words that a first line must not say are a check only if some first line can say them. A sentence that changes leaves words behind that
//! nothing says any more, and the check that has them cannot fail.

use std::fs;
use std::path::Path;

use super::{Case, cases, faults_of_pods};

/// Names of containers and plugins, in the suite and in the documented sentences.
const NAMES: [&str; 15] = [
    "app",
    "side",
    "prepare",
    "migrate",
    "mesh",
    "mig",
    "init",
    "job",
    "web",
    "bridge",
    "calico",
    "slow-policy",
    "debugger",
    // Stand for one in a template.
    "target",
    "name",
];

fn all_cases() -> Vec<Case> {
    let groups = [
        cases::healthy::all(),
        faults_of_pods(),
        cases::runtimes::all(),
        cases::downtimes::all(),
        cases::own::all(),
    ];
    groups.into_iter().flatten().collect()
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// The text in lower case, with `_` for each name and `0` for each number, and without the braces of templates.
fn generalized(text: &str) -> String {
    let mut general = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_of_word(first) {
            rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let word = rest[..end].to_lowercase();
        general.push_str(match &*word {
            name if NAMES.contains(&name) => "_",
            "{" | "}" => "",
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => "0",
            word => word,
        });
        rest = &rest[end..];
    }
    general
}

/// The lines with texts in the sources below a folder, without comments and tests.
fn texts_of_sources(folder: &Path, texts: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            texts_of_sources(&path, texts);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let source = fs::read_to_string(&path).expect("UTF-8");
            let lines = source.lines().map(str::trim);
            for line in lines.filter(|line| line.contains('"') && !line.starts_with("//")) {
                texts.push_str(line);
                texts.push('\n');
            }
        }
    }
}

/// Whether a name or a text that the suite itself makes has this word: its containers, and what its plugins and programs write.
fn is_of_suite(word: &str) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/truth");
    let mut texts = String::new();
    texts_of_sources(&folder, &mut texts);
    // Once in the list that forbids it.
    !word.contains(' ') && texts.matches(word).count() > 1
}

#[test]
fn each_word_that_blames_can_be_said() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut said = fs::read_to_string(root.join("docs/SENTENCES.md")).expect("the document");
    texts_of_sources(&root.join("crates/lifecycle/src"), &mut said);
    let said = generalized(&said);
    let mut unsaid = Vec::new();
    for case in all_cases() {
        let facts = case
            .expected
            .iter()
            .flat_map(|expected| expected.never.split("; "));
        for word in facts.flat_map(|fact| fact.split('|')) {
            let is_duration = word.starts_with('~');
            if !is_duration && !said.contains(&generalized(word)) && !is_of_suite(word) {
                unsaid.push(format!("{}: {word}", case.name));
            }
        }
    }
    unsaid.sort();
    assert!(
        unsaid.is_empty(),
        "no first line says these words any more:\n{}",
        unsaid.join("\n")
    );
}
