//! Paths in a stream of tokens, such as those of imports.

use proc_macro2::{Delimiter, TokenTree};

/// Top modules whose submodules have their own rows in the table of imports.
pub(super) const SPLIT: &[&str] = &["proxy"];

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

/// The tokens after a path to the crate root: `crate::`, `criscope::`, or as many `super::` as there are modules.
pub(super) fn behind_root(tokens: &[TokenTree], depth: usize) -> Option<&[TokenTree]> {
    if ident(tokens, "crate").is_some() || ident(tokens, "criscope").is_some() {
        return after_colons(&tokens[1..]);
    }
    behind_supers(tokens, depth)
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

/// The rows named by a path, or group of paths, after the crate root.
pub(super) fn rows(tokens: &[TokenTree]) -> Vec<(String, usize)> {
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
            tokens.split(is_comma).flat_map(rows).collect()
        }
        _ => first_names(tokens),
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
