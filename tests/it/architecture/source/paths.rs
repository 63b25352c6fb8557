//! Paths in a stream of tokens, such as those of imports.

use proc_macro2::{Delimiter, TokenTree};

/// Top modules whose submodules have their own rows in the table of imports.
pub(super) const SPLIT: &[&str] = &["proxy"];

/// A crate of the product, whose modules have rows in the table of imports.
#[derive(Debug)]
pub(crate) struct ProductCrate {
    /// As in paths.
    pub(crate) name: &'static str,
    /// The folder below `crates`, and the row of all modules but those of [`ProductCrate::rows`]; empty: each module has a row.
    pub(crate) row: &'static str,
    /// The modules with rows of their own.
    rows: &'static [&'static str],
}

/// The library and the programs, under `src`.
pub(crate) const ROOT_CRATE: ProductCrate = ProductCrate {
    name: "criscope",
    row: "",
    rows: &[],
};

/// The crates that the product consists of.
pub(crate) const PRODUCT_CRATES: &[ProductCrate] = &[
    ProductCrate {
        name: "criscope_cri",
        row: "cri",
        rows: &["call", "units"],
    },
    ProductCrate {
        name: "criscope_grpc",
        row: "grpc",
        rows: &["uds"],
    },
    ProductCrate {
        name: "criscope_lifecycle",
        row: "lifecycle",
        rows: &[],
    },
    ProductCrate {
        name: "criscope_pages",
        row: "pages",
        rows: &[],
    },
    ProductCrate {
        name: "criscope_runtime",
        row: "runtime",
        rows: &[],
    },
    ProductCrate {
        name: "criscope_settings",
        row: "settings",
        rows: &[],
    },
    ProductCrate {
        name: "criscope_telemetry",
        row: "telemetry",
        rows: &["version"],
    },
];

impl ProductCrate {
    /// Where its sources are.
    pub(crate) fn folder(&self) -> String {
        match self.row {
            "" => "src".to_owned(),
            row => format!("crates/{row}/src"),
        }
    }

    /// The row of one of its top modules, or of an item of its root.
    pub(super) fn row(&self, name: &str) -> String {
        let row = match self.row {
            "" => name,
            _ if self.rows.contains(&name) => name,
            row => row,
        };
        row.to_owned()
    }
}

/// The line of the word if the tokens start with it.
pub(super) fn ident(tokens: &[TokenTree], word: &str) -> Option<usize> {
    match tokens.first() {
        Some(TokenTree::Ident(found)) if *found == word => Some(found.span().start().line),
        _ => None,
    }
}

pub(super) fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(a), TokenTree::Punct(b), rest @ ..]
            if a.as_char() == ':' && b.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

/// The crate and the tokens after a path to its root: `crate::`, as many `super::` as there are modules, or the name of a
/// crate of the product.
pub(super) fn behind_root<'t>(
    tokens: &'t [TokenTree],
    own: &'static ProductCrate,
    depth: usize,
) -> Option<(&'static ProductCrate, &'t [TokenTree])> {
    if ident(tokens, "crate").is_some() {
        return Some((own, after_colons(&tokens[1..])?));
    }
    let named = PRODUCT_CRATES.iter().chain([&ROOT_CRATE]);
    for one in named {
        if ident(tokens, one.name).is_some() {
            return Some((one, after_colons(&tokens[1..])?));
        }
    }
    Some((own, behind_supers(tokens, depth)?))
}

/// A crate of the product that is imported as a whole, as in `use criscope_cri as cri`, with the line.
pub(super) fn whole_crate(tokens: &[TokenTree]) -> Option<(&'static ProductCrate, usize)> {
    let found = PRODUCT_CRATES
        .iter()
        .find_map(|one| Some((one, ident(tokens, one.name)?)))?;
    after_colons(&tokens[1..]).is_none().then_some(found)
}

/// The tokens after this many `super::`; `None` if `depth` is 0.
pub(super) fn behind_supers(tokens: &[TokenTree], depth: usize) -> Option<&[TokenTree]> {
    let mut rest = tokens;
    for _ in 0..depth {
        ident(rest, "super")?;
        rest = after_colons(&rest[1..])?;
    }
    (depth > 0).then_some(rest)
}

/// The rows named by a path, or group of paths, after the root of a crate.
pub(super) fn rows(tokens: &[TokenTree], root: &ProductCrate) -> Vec<(String, usize)> {
    match tokens {
        [TokenTree::Ident(first), rest @ ..] if SPLIT.contains(&first.to_string().as_str()) => {
            let seconds = after_colons(rest).map(first_names).unwrap_or_default();
            seconds
                .into_iter()
                .map(|(second, line)| (format!("{first}::{second}"), line))
                .collect()
        }
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
            let tokens: Vec<_> = group.stream().into_iter().collect();
            let paths = tokens.split(is_comma);
            paths.flat_map(|path| rows(path, root)).collect()
        }
        _ => first_names(tokens)
            .into_iter()
            .map(|(name, line)| (root.row(&name), line))
            .collect(),
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == ',')
}

/// The first names of a path or of a group of paths: `a` of `a::b`, `a` and `c` of `{a::b, c}`.
pub(super) fn first_names(tokens: &[TokenTree]) -> Vec<(String, usize)> {
    match tokens.first() {
        Some(TokenTree::Ident(name)) => vec![(name.to_string(), name.span().start().line)],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let tokens: Vec<_> = group.stream().into_iter().collect();
            tokens.split(is_comma).flat_map(first_names).collect()
        }
        _ => Vec::new(),
    }
}
