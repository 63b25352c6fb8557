//! What leaves the process over OTLP is on a list: background jobs, which the product and not only a test begins, and attributes.

use std::collections::BTreeSet;

use criscope::telemetry::BackgroundJob;
use criscope::telemetry::otlp::{ATTRIBUTES, Stability};
use proc_macro2::TokenTree;

use super::source::{File, source_files, test_modules};

/// The list of jobs, and the only file that makes spans with `tracing`.
const JOBS: &str = "crates/telemetry/src/job.rs";

/// The list of attributes.
const TABLE: &str = "crates/telemetry/src/otlp/attributes.rs";

/// Calls `see` at every position of the product's code, outside unit tests.
fn walk(files: &[File], mut see: impl FnMut(&File, &[TokenTree])) {
    let tests = test_modules(files);
    for file in files {
        file.walk_product(&tests, &mut |tokens| see(file, tokens));
    }
}

/// The identifier after `first::`.
fn member(tokens: &[TokenTree], first: &str) -> Option<String> {
    match tokens {
        [
            TokenTree::Ident(word),
            TokenTree::Punct(_),
            TokenTree::Punct(colon),
            TokenTree::Ident(name),
            ..,
        ] if *word == first && colon.as_char() == ':' => Some(name.to_string()),
        _ => None,
    }
}

#[test]
fn the_product_begins_every_background_job() {
    let (mut begun, mut spans) = (BTreeSet::new(), Vec::new());
    walk(&source_files(), |file, tokens| {
        if file.path == JOBS {
            return;
        }
        begun.extend(member(tokens, "BackgroundJob"));
        if let [TokenTree::Ident(word), TokenTree::Punct(bang), ..] = tokens
            && (word.to_string().ends_with("_span") || *word == "span")
            && bang.as_char() == '!'
        {
            spans.push(format!("{}: {word}!", file.path));
        }
    });
    let all = BackgroundJob::ALL.map(|job| format!("{job:?}"));
    assert_eq!(
        begun,
        BTreeSet::from(all),
        "jobs of the product (left) and listed"
    );
    assert!(spans.is_empty(), "spans that no collector gets: {spans:?}");
}

#[test]
fn every_exported_attribute_is_in_the_table() {
    let (mut listed, mut used, mut own) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    walk(&source_files(), |file, tokens| {
        let keys = if file.path == TABLE {
            &mut listed
        } else {
            &mut used
        };
        if file
            .text
            .contains("use opentelemetry_semantic_conventions::attribute as key;")
        {
            keys.extend(member(tokens, "key"));
        }
        let exports = ["KeyValue::new(", "BackgroundJob", "JobSpan"];
        if let [TokenTree::Literal(literal), ..] = tokens
            && file.path != TABLE
            && exports.iter().any(|word| file.text.contains(word))
            && let text = literal.to_string()
            && text.starts_with("\"criscope.")
        {
            own.insert(text.trim_matches('"').to_owned());
        }
    });
    let missing: Vec<_> = used.difference(&listed).collect();
    assert!(missing.is_empty(), "not in {TABLE}: {missing:?}");
    let table = ATTRIBUTES
        .iter()
        .filter(|(_, stability)| *stability == Stability::Own);
    let table: BTreeSet<_> = table.map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        own, table,
        "own attributes of the product (left) and listed"
    );
}
