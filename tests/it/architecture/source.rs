//! The source of the workspace as tokens. Comments and strings are not searched, so every match is code.

mod paths;

use std::fmt;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

pub(super) use self::paths::{PRODUCT_CRATES, ROOT_CRATE};
use self::paths::{
    ProductCrate, SPLIT, after_colons, behind_root, behind_supers, first_names, ident, rows,
    whole_crate,
};
use crate::prelude::*;

/// The directory of `Cargo.toml`.
pub(super) fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the product: under `src`, and those of its own crates.
pub(super) fn product_files() -> Vec<File> {
    let folders = PRODUCT_CRATES.iter().map(ProductCrate::folder);
    let mut files: Vec<_> = folders.flat_map(|folder| files_under(&folder)).collect();
    files.extend(files_under(&ROOT_CRATE.folder()));
    files
}

/// The Rust files of the product and its crates, including their examples and tests.
pub(super) fn source_files() -> Vec<File> {
    let mut files = files_under("crates");
    files.extend(files_under("src"));
    files
}

/// All Rust files of the repository: also the tests, benchmarks, examples and fuzz targets.
pub(super) fn all_files() -> Vec<File> {
    let folders = ["benches", "examples", "fuzz/fuzz_targets", "tests"];
    let mut files = source_files();
    files.extend(folders.into_iter().flat_map(files_under));
    files.push(File::read(&crate_root().join("build.rs")));
    files
}

/// The Rust files under a directory, sorted by path.
pub(super) fn files_under(folder: &str) -> Vec<File> {
    let mut paths = Vec::new();
    collect(&crate_root().join(folder), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no files under {folder}");
    paths.iter().map(|path| File::read(path)).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|e| e == "rs") {
            paths.push(path);
        }
    }
}

/// A position in the source.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Relative to the root of the workspace.
    pub(super) path: String,
    /// Line number, starting at 1.
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// One source file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root of the workspace.
    pub(super) path: String,
    pub(super) text: String,
    tokens: TokenStream,
}

impl File {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let tokens = text
            .parse()
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let path = path.strip_prefix(crate_root()).expect("below the root");
        Self {
            path: path.display().to_string(),
            text,
            tokens,
        }
    }

    /// A file with this text, for tests of the checks.
    pub(super) fn example(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            tokens: text.parse().expect("tokens"),
        }
    }

    /// The crate of the product that this file belongs to.
    fn product_crate(&self) -> &'static ProductCrate {
        let is_in = |one: &&ProductCrate| self.path.starts_with(&format!("{}/", one.folder()));
        PRODUCT_CRATES.iter().find(is_in).unwrap_or(&ROOT_CRATE)
    }

    /// The module path of this file, outermost first: `["router", "rules"]` for `src/router/rules.rs`.
    fn modules(&self) -> Vec<&str> {
        let path = self.path.trim_start_matches(&self.product_crate().folder());
        let path = path.trim_start_matches('/').trim_end_matches(".rs");
        let mut parts: Vec<_> = path.split('/').collect();
        if parts.len() > 1 && parts.last() == Some(&"mod") {
            parts.pop();
        }
        if parts == ["lib"] {
            parts.clear();
        }
        parts
    }

    /// The row of the table this file belongs to: its top module, and within [`SPLIT`] the module below that. Most modules
    /// of a crate of the product share one row.
    pub(super) fn module(&self) -> String {
        match self.modules()[..] {
            [first, second, ..] if SPLIT.contains(&first) => format!("{first}::{second}"),
            [first, ..] => self.product_crate().row(first),
            [] => self.product_crate().row("lib"),
        }
    }

    /// The module path with the crate before it: unique in the product.
    fn full_path(&self) -> String {
        let mut path = vec![self.product_crate().name];
        path.extend(self.modules());
        path.join("::")
    }

    /// Returns whether this file is a module of unit tests.
    fn is_tests(&self) -> bool {
        self.modules().contains(&"tests")
    }

    /// The other top modules that this file names outside unit tests, with one position each.
    pub(super) fn imports(&self) -> Vec<(String, Place)> {
        let mut found = Vec::new();
        let around = Around {
            modules: self.modules().len(),
            tests: self.is_tests(),
        };
        self.walk(self.tokens.clone(), around, &mut |tokens, around| {
            if around.tests {
                return;
            }
            if let Some((root, line)) = whole_crate(tokens) {
                found.push((root.row.to_owned(), line));
            }
            if let Some((root, rest)) = behind_root(tokens, self.product_crate(), around.modules) {
                found.extend(rows(rest, root));
            }
            // From one part of a split module into a sibling.
            if let [first, _, ..] = self.modules()[..]
                && SPLIT.contains(&first)
                && let Some(rest) = behind_supers(tokens, around.modules - 1)
            {
                let names = first_names(rest).into_iter();
                found.extend(names.map(|(name, line)| (format!("{first}::{name}"), line)));
            }
        });
        let (own, mut seen) = (self.module(), BTreeSet::new());
        found.retain(|(name, _)| *name != own && seen.insert(name.clone()));
        found
            .into_iter()
            .map(|(name, line)| (name, self.place(line)))
            .collect()
    }

    /// All positions of an identifier or keyword.
    pub(super) fn idents(&self, word: &str) -> Vec<Place> {
        let mut found = Vec::new();
        self.walk(self.tokens.clone(), Around::default(), &mut |tokens, _| {
            if let Some(line) = ident(tokens, word) {
                found.push(self.place(line));
            }
        });
        found
    }

    /// All positions of `first::second`.
    pub(super) fn paths(&self, first: &str, second: &str) -> Vec<Place> {
        let mut found = Vec::new();
        self.walk(self.tokens.clone(), Around::default(), &mut |tokens, _| {
            let Some(line) = ident(tokens, first) else {
                return;
            };
            let rest = after_colons(&tokens[1..])
                .map(first_names)
                .unwrap_or_default();
            if rest.iter().any(|(name, _)| name == second) {
                found.push(self.place(line));
            }
        });
        found
    }

    /// The names of the test functions.
    pub(super) fn tests(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut is_test = false;
        self.walk(
            self.tokens.clone(),
            Around::default(),
            &mut |tokens, _| match tokens {
                [TokenTree::Punct(p), TokenTree::Group(g), ..]
                    if p.as_char() == '#' && is_test_attribute(g.stream()) =>
                {
                    is_test = true;
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), ..]
                    if *word == "fn" && is_test =>
                {
                    found.insert(name.to_string());
                    is_test = false;
                }
                _ => {}
            },
        );
        found
    }

    fn place(&self, line: usize) -> Place {
        Place {
            path: self.path.clone(),
            line,
        }
    }

    /// Calls `see` at every position outside unit tests, with the tokens from there on. `tests` are the modules found
    /// by [`test_modules`].
    pub(super) fn walk_product(&self, tests: &[String], see: &mut dyn FnMut(&[TokenTree])) {
        let path = self.full_path();
        let is_below = |test: &String| {
            path.strip_prefix(test.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if self.is_tests() || tests.iter().any(is_below) {
            return;
        }
        self.walk(
            self.tokens.clone(),
            Around::default(),
            &mut |tokens, around| {
                if !around.tests {
                    see(tokens);
                }
            },
        );
    }

    /// Calls `see` at every position of the token tree, with the tokens from there on and the enclosing modules.
    fn walk(&self, stream: TokenStream, around: Around, see: &mut dyn FnMut(&[TokenTree], Around)) {
        let tokens: Vec<_> = stream.into_iter().collect();
        let mut here = around;
        for (at, token) in tokens.iter().enumerate() {
            here.tests |= is_for_tests(&tokens[at..]);
            see(&tokens[at..], here);
            if let TokenTree::Group(group) = token {
                self.walk(group.stream(), here.inside(&tokens[..at]), see);
            }
            if ends_item(token) {
                here = around;
            }
        }
    }
}

/// The modules that enclose a position in a file.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    /// Their number.
    modules: usize,
    /// Whether one of them is compiled only for tests.
    tests: bool,
}

impl Around {
    /// The context inside a group that follows these tokens.
    fn inside(mut self, before: &[TokenTree]) -> Self {
        if let [.., TokenTree::Ident(word), TokenTree::Ident(_)] = before
            && *word == "mod"
        {
            self.modules += 1;
        }
        self
    }
}

/// Conditions of code that no program contains.
const TEST_ATTRIBUTES: [&str; 3] = [
    "cfg (test)",
    "cfg (any (test , fuzzing))",
    "cfg (any (test , feature = \"test-util\"))",
];

/// Returns whether the tokens start with an attribute that limits the next item to tests.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    match tokens {
        [TokenTree::Punct(p), TokenTree::Group(attribute), ..] if p.as_char() == '#' => {
            let attribute = attribute.stream().to_string();
            TEST_ATTRIBUTES.contains(&attribute.as_str())
        }
        _ => false,
    }
}

/// Returns whether an item can end with this token.
fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(p) => p.as_char() == ';',
        _ => false,
    }
}

/// The paths of modules in separate files that are compiled only for tests, like `lifecycle::examples`.
pub(super) fn test_modules(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        file.walk(
            file.tokens.clone(),
            Around::default(),
            &mut |tokens, around| {
                if let [
                    TokenTree::Ident(word),
                    TokenTree::Ident(name),
                    TokenTree::Punct(_),
                    ..,
                ] = tokens
                    && *word == "mod"
                    && around.tests
                {
                    found.push(format!("{}::{name}", file.full_path()));
                }
            },
        );
    }
    found
}

/// Returns whether this is `test` or a path that ends in it, like `tokio::test(start_paused = true)`.
fn is_test_attribute(attribute: TokenStream) -> bool {
    let path = attribute
        .into_iter()
        .take_while(|token| !matches!(token, TokenTree::Group(_)));
    matches!(path.last(), Some(TokenTree::Ident(last)) if last == "test")
}

#[test]
fn every_form_of_import_is_found() {
    let file = File::example;
    let names = |file: &File| {
        file.imports()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let text = "
        //! [`crate::comment`]
        use crate::a::B;
        use crate::{c, d::{e, f}, router};
        fn x() { tracing::info!(x = crate::g::h(), \"crate::text\"); super::super::i::j(); super::k(); }
        mod inner { use super::super::super::l; use super::super::m; }
        #[cfg(test)] mod tests { use crate::only_in_tests; }
    ";
    assert_eq!(
        names(&file("src/router/rules.rs", text)),
        ["a", "c", "d", "g", "i", "l"]
    );
    assert_eq!(names(&file("src/inspect.rs", "use super::n;")), ["n"]);
    assert_eq!(names(&file("src/inspect/mod.rs", "use super::n;")), ["n"]);
    assert_eq!(names(&file("src/main.rs", "use criscope::o;")), ["o"]);
    assert_eq!(
        names(&file("src/inspect/tests.rs", "use crate::p;")),
        [""; 0]
    );
    let text = "use crate::{a, proxy::{router, inspect::B}}; use super::super::rescue::C; use super::body;";
    assert_eq!(
        names(&file("src/proxy/router/rules.rs", text)),
        ["a", "proxy::inspect", "proxy::rescue"]
    );
    // Crates of the product, from above and from inside.
    let text = "use criscope_cri::{Method, call::Call, units::{self, bytes}};";
    assert_eq!(
        names(&file("src/router/rules.rs", text)),
        ["cri", "call", "units"]
    );
    let text = "pub use criscope_cri as cri; pub use criscope_grpc::uds;";
    assert_eq!(names(&file("src/lib.rs", text)), ["cri", "uds"]);
    let text = "use crate::{Method, units}; use super::super::redact; use super::Call;";
    assert_eq!(
        names(&file("crates/cri/src/call/live.rs", text)),
        ["cri", "units"]
    );
    let tests = file(
        "src/x.rs",
        "#[test] fn a() {} #[cfg(test)] mod t { #[tokio::test(x = 1)] async fn b() {} fn c() {} }",
    );
    assert_eq!(tests.tests().into_iter().collect::<Vec<_>>(), ["a", "b"]);
}
