//! Every declared metric is in the catalogue and updated by the product: a metric that only tests update would be exported
//! as a meaningless zero.

use criscope::catalogue::CATALOGUE;
use proc_macro2::{Delimiter, Group, TokenTree};

use super::source::{File, product_files, source_files, test_modules};
use crate::prelude::*;

/// Methods of a series that update a metric.
const MOVES: &[&str] = &["inc", "inc_by", "add", "set", "observe", "observe_traced"];

/// Types of the fields of a struct that updates metrics.
const FAMILIES: &[&str] = &["Counters", "Gauges", "Histograms"];

/// Metrics in the sources, without unit tests.
#[derive(Default)]
struct Found {
    /// The names that `metrics!` declares, with their files.
    declared: BTreeMap<String, String>,
    /// The number of occurrences of each identifier.
    idents: BTreeMap<String, usize>,
    /// The identifiers after a `.` or `::`.
    called: BTreeSet<String>,
    /// The identifiers before a `::`.
    qualifiers: BTreeSet<String>,
    /// The structs that contain metric families.
    handles: BTreeSet<String>,
    /// The methods with `self` that update a metric, by struct.
    methods: BTreeSet<(String, String)>,
}

impl Found {
    fn new(files: &[File]) -> Self {
        let tests = test_modules(files);
        let mut found = Self::default();
        for file in files {
            file.walk_product(&tests, &mut |tokens| found.see(&file.path, tokens));
        }
        found
    }

    fn see(&mut self, path: &str, tokens: &[TokenTree]) {
        if let [TokenTree::Ident(ident), ..] = tokens {
            *self.idents.entry(ident.to_string()).or_default() += 1;
        }
        match tokens {
            [
                TokenTree::Ident(word),
                TokenTree::Punct(bang),
                TokenTree::Group(group),
                ..,
            ] if *word == "metrics" && bang.as_char() == '!' => {
                for name in declared(group) {
                    let other = self.declared.insert(name.clone(), path.to_owned());
                    assert_eq!(other, None, "{name} is declared twice");
                }
            }
            [
                TokenTree::Ident(word),
                TokenTree::Ident(name),
                TokenTree::Group(fields),
                ..,
            ] if *word == "struct" && FAMILIES.iter().any(|family| has(fields, family)) => {
                self.handles.insert(name.to_string());
            }
            [
                TokenTree::Ident(word),
                TokenTree::Ident(name),
                TokenTree::Group(body),
                ..,
            ] if *word == "impl" => {
                let moving = moving(body).into_iter();
                self.methods
                    .extend(moving.map(|method| (name.to_string(), method)));
            }
            [TokenTree::Punct(dot), TokenTree::Ident(name), ..]
                if ['.', ':'].contains(&dot.as_char()) =>
            {
                self.called.insert(name.to_string());
            }
            [
                TokenTree::Ident(name),
                TokenTree::Punct(a),
                TokenTree::Punct(b),
                ..,
            ] if a.as_char() == ':' && b.as_char() == ':' => {
                self.qualifiers.insert(name.to_string());
            }
            _ => {}
        }
    }

    /// Returns what is declared or defined but never used. Methods are distinguished by name only.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, path) in &self.declared {
            // One occurrence is the declaration.
            if self.idents.get(name).is_none_or(|times| *times < 2) {
                problems.push(format!("{path}: no code outside tests registers {name}"));
            }
        }
        for handle in &self.handles {
            if !self.qualifiers.contains(handle) {
                problems.push(format!("no code outside tests creates a {handle}"));
            }
        }
        for (handle, method) in &self.methods {
            if self.handles.contains(handle) && !self.called.contains(method) {
                problems.push(format!("no code outside tests calls {handle}::{method}"));
            }
        }
        problems
    }
}

/// The names of `NAME = ...; NAME = ...;`.
fn declared(group: &Group) -> Vec<String> {
    let tokens: Vec<_> = group.stream().into_iter().collect();
    let entries = tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ';'));
    entries
        .filter_map(|entry| match entry {
            [TokenTree::Ident(name), TokenTree::Punct(p), ..] if p.as_char() == '=' => {
                Some(name.to_string())
            }
            _ => None,
        })
        .collect()
}

/// The methods with `self` in an `impl` block that update a metric.
fn moving(body: &Group) -> Vec<String> {
    let mut found = Vec::new();
    let mut current = None;
    let mut has_self = false;
    let mut before: Option<TokenTree> = None;
    for token in body.stream() {
        match &token {
            TokenTree::Ident(name) if matches!(&before, Some(TokenTree::Ident(word)) if *word == "fn") =>
            {
                current = Some(name.to_string());
                has_self = false;
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                has_self |= has(group, "self");
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if let Some(name) = current.take()
                    && has_self
                    && MOVES.iter().any(|word| has(group, word))
                {
                    found.push(name);
                }
            }
            _ => {}
        }
        before = Some(token);
    }
    found
}

/// Returns whether an identifier occurs anywhere in the group.
fn has(group: &Group, word: &str) -> bool {
    group.stream().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => has(&group, word),
        _ => false,
    })
}

/// The product and criscope-agent, which reports one of its metrics.
fn reporting_files() -> Vec<File> {
    let agent = source_files().into_iter();
    let agent = agent.filter(|file| file.path.starts_with("crates/agent/"));
    product_files().into_iter().chain(agent).collect()
}

#[test]
fn every_declared_metric_is_in_the_catalogue_and_updated_by_the_product() {
    let found = Found::new(&reporting_files());
    assert!(found.handles.len() > 5, "{:?}", found.handles);
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for path in found.declared.values() {
        *files.entry(path).or_default() += 1;
    }
    assert_eq!(
        found.declared.len(),
        CATALOGUE.len(),
        "declared (left) and in the catalogue: {files:?}"
    );
    let problems = found.problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_metric_that_only_tests_update_is_found() {
    let declared = "
        metrics! { USED = Metric::counter(\"a\", &[], \"\"); UNUSED = Metric::counter(\"b\", &[FIXED], \"\"); }
        pub struct Handle { used: Counters }
        impl Handle {
            pub fn new() -> Self { Self { used: registry.counters(&USED) } }
            pub fn moved(&self) { self.used.inc(()); }
            pub fn not_moved(&self) { if self.is_on { self.used.inc(()); } }
            pub fn read(&self) -> u64 { self.used.used(()).get() }
        }
        struct Unmade { gauge: Gauges<Reason> }
        #[cfg(test)]
        pub(crate) fn populate() { Unmade::new(&UNUSED); }
        #[cfg(test)]
        mod tests { fn x() { Handle::new().not_moved(); registry.counters(&UNUSED); } }
        #[cfg(test)]
        mod script;
    ";
    let found = Found::new(&[
        File::example("src/a/mod.rs", declared),
        File::example("src/a/script.rs", "fn x() { handle.not_moved(); }"),
        File::example("src/a/tests/b.rs", "fn x() { handle.not_moved(); }"),
        File::example("src/c.rs", "fn x() { a::Handle::new().moved(); }"),
    ]);
    assert_eq!(
        found.problems(),
        [
            "src/a/mod.rs: no code outside tests registers UNUSED",
            "no code outside tests creates a Unmade",
            "no code outside tests calls Handle::not_moved",
        ]
    );
}
