//! criscope's own errors: they may reach a caller through another criscope, which must not redact them.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::*;

/// Files whose texts cannot end a call: an AppArmor profile, the help of metrics, and the help and errors of settings.
const NO_ERRORS: [&str; 5] = [
    "node/apparmor.rs",
    "metrics.rs",
    "stats/metrics/table.rs",
    "runtime/src/sections",
    "settings.rs",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_left_out = NO_ERRORS.iter().any(|end| path.ends_with(end));
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_left_out || is_test {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The string literals of a file, without those of its tests and its documentation.
fn literals(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_attribute = false;
    let mut is_test = false;
    for token in tokens {
        let (begins_attribute, is_inner) = (is_punct(&token, '#'), is_punct(&token, '!'));
        match token {
            TokenTree::Group(group) if is_attribute => {
                is_test |= group.stream().to_string() == "cfg (test)";
                if first_word(&group) == "error" {
                    literals(group.stream(), found);
                }
            }
            TokenTree::Group(group) => {
                let is_skipped = is_test && group.delimiter() == Delimiter::Brace;
                if is_skipped {
                    is_test = false
                } else {
                    literals(group.stream(), found)
                }
            }
            TokenTree::Punct(p) if p.as_char() == ';' => is_test = false,
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if let Some(text) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
                    found.push(text.to_owned());
                }
            }
            _ => {}
        }
        is_attribute = begins_attribute || (is_attribute && is_inner);
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn first_word(group: &Group) -> String {
    let first = group.stream().into_iter().next();
    first.map(|token| token.to_string()).unwrap_or_default()
}

/// A literal as it is displayed: with a short value for each placeholder.
fn filled_in(literal: &str) -> String {
    let mut text = String::new();
    let mut depth = 0;
    let literal = literal.replace("{{", " ").replace("}}", " ");
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                text.push(' ');
            }
            '{' => depth += 1,
            '}' if depth > 0 => {
                depth -= 1;
                text.push('a');
            }
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

#[test]
fn what_the_built_in_runtime_says_has_no_holes() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut paths = Vec::new();
    for folder in [
        "crates/cni/src",
        "crates/image/src",
        "crates/linux/src",
        "crates/nri/src",
        "crates/shim/src",
        "crates/wire/src",
        "crates/runtime/src",
        "src/proxy/router",
        "src/proxy/backend",
    ] {
        sources(&root.join(folder), &mut paths);
    }
    // Of these crates only the errors that can end a call; others are shown to the client of a session only.
    let errors = ["error.rs", "request.rs"];
    paths.extend(errors.map(|file| root.join("crates/cri-streaming/src").join(file)));
    let (mut holes, mut seen) = (Vec::new(), 0);
    for path in paths {
        let text = fs::read_to_string(&path).expect("a file");
        let mut found = Vec::new();
        literals(text.parse().expect("tokens"), &mut found);
        // Sentences have at least three words.
        for literal in found.iter().filter(|text| text.matches(' ').count() > 1) {
            let text = filled_in(literal);
            seen += 1;
            let shown = error_text(&text, Some(b""), None, None);
            if shown.contains(HIDDEN) {
                holes.push(format!("{}: {text}: {shown}", path.display()));
            }
        }
    }
    assert!(seen > 300, "only {seen} texts were found");
    assert!(
        holes.is_empty(),
        "words that are not known:\n{}",
        holes.join("\n")
    );
}
