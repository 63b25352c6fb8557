//! What is hidden even if it is not known as a secret: what follows the name of a credential, users and queries in URLs,
//! values of flags and environment variables, tokens that look random.

use std::ops::Range;

/// Behind these words follows a credential.
const NAMES: [&str; 21] = [
    "accesskey",
    "apikey",
    "auth",
    "authorization",
    "basic",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secrets",
    "sig",
    "signature",
    "token",
];

/// Behind these too, if a colon or an equals sign is between.
const USERS: [&str; 4] = ["login", "session", "user", "username"];

/// Shortest token that can look random.
const SHORTEST_RANDOM: usize = 12;

/// Marks the bytes of `text` that a word outside of the vocabulary must not occupy. `is_known`: the word belongs to the
/// vocabulary.
pub(super) fn mark(text: &str, is_known: &dyn Fn(&str) -> bool, marks: &mut [bool]) {
    let mut mark = |range: Range<usize>| marks[range].fill(true);
    for chunk in split(text, |b| b.is_ascii_whitespace()) {
        if let Some(range) = query(text, &chunk) {
            mark(range);
        }
        if let Some(range) = user(text, &chunk) {
            mark(range);
        }
    }
    for word in split(text, |b| !is_in_name(b)) {
        if let Some(range) = value(text, &word, is_known) {
            mark(range);
        }
    }
    let is_in_token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    for token in split(text, |b| !is_in_token(b)) {
        // Of a path, only its parts are judged.
        let mut parts = text[token.clone()].split('/');
        let is_path = parts.any(|part| part.len() > 2 && is_known(part));
        if !is_path && looks_random(&text[token.clone()]) {
            mark(token);
        }
    }
    for piece in split(text, |b| !b.is_ascii_alphanumeric()) {
        if looks_random(&text[piece.clone()]) {
            mark(piece);
        }
    }
}

/// The parts of a text between such bytes.
fn split(text: &str, is_between: impl Fn(u8) -> bool) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut here = 0;
    std::iter::from_fn(move || {
        let begin = here + bytes[here..].iter().position(|b| !is_between(*b))?;
        let length = bytes[begin..].iter().position(|b| is_between(*b));
        here = length.map_or(bytes.len(), |length| begin + length);
        Some(begin..here)
    })
}

/// What follows the question mark in a URL, or in a path with parameters.
fn query(text: &str, chunk: &Range<usize>) -> Option<Range<usize>> {
    let url = &text[chunk.clone()];
    let at = url.find('?')?;
    let is_query = url[..at].contains("://") || url[at..].contains('=');
    is_query.then_some(chunk.start + at..chunk.end)
}

/// What precedes the `@` of a URL, but not a name in front of a digest. A password may contain any character.
fn user(text: &str, chunk: &Range<usize>) -> Option<Range<usize>> {
    let url = &text[chunk.clone()];
    let at = url
        .match_indices('@')
        .rfind(|(at, _)| !super::is_digest_of(&url[at + 1..]));
    Some(chunk.start..chunk.start + at?.0)
}

fn is_in_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// The value that follows a name: of a credential, of an environment variable, a flag or anything that is not known.
fn value(text: &str, word: &Range<usize>, is_known: &dyn Fn(&str) -> bool) -> Option<Range<usize>> {
    let name = &text[word.clone()];
    let rest = &text[word.end..];
    let pieces = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let last = pieces().rfind(|piece| !piece.is_empty())?;
    let last = last.to_ascii_lowercase();
    let is_name = |it: &&str| last == **it || (it.len() > 5 && last.ends_with(*it));
    let names_credential = NAMES.iter().any(&is_name);
    let names_user = USERS.iter().any(is_name);
    let separators =
        rest.find(|c: char| !matches!(c, ':' | '=' | ' ' | '"' | '\'' | '\\' | '>'))?;
    let between = &rest[..separators];
    // A path in quotes and what happened to it: `"/etc/passwd": not a directory`.
    let quotes = |c: char| matches!(c, '"' | '\'');
    if text[..word.start].ends_with('/')
        && between.starts_with(quotes)
        && !between.ends_with(quotes)
    {
        return None;
    }
    let is_assigned = between.starts_with('=');
    let is_variable = name.len() > 1
        && name.bytes().any(|b| b.is_ascii_uppercase())
        && !name.bytes().any(|b| b.is_ascii_lowercase());
    let is_unknown = || name.starts_with('-') || pieces().any(|it| !it.is_empty() && !is_known(it));
    let is_secret = match is_assigned {
        true => names_credential || names_user || is_variable || is_unknown(),
        false if between.is_empty() || between.len() > 5 => false,
        false => names_credential || (names_user && between.starts_with(':')),
    };
    if !is_secret {
        return None;
    }
    let begin = word.end + separators;
    // A quoted value ends with its quote, any other with a blank.
    let quote = between.chars().rev().find(|c| matches!(c, '"' | '\''));
    let value = &text[begin..];
    let end = match quote {
        Some(quote) => value.find(quote),
        None => value.find(|c: char| c.is_ascii_whitespace()),
    };
    Some(begin..begin + end.unwrap_or(value.len()))
}

/// Letters and digits in no order, as in keys and tokens; also the beginning of a JSON object in base64.
fn looks_random(token: &str) -> bool {
    let letters: Vec<_> = token.bytes().filter(u8::is_ascii_alphanumeric).collect();
    if token.starts_with("eyJ") && letters.len() >= SHORTEST_RANDOM {
        return true;
    }
    let class = |b: u8| match b {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    };
    let of = |class_: u8| letters.iter().filter(|b| class(**b) == class_).count();
    let changes = letters
        .windows(2)
        .filter(|w| class(w[0]) != class(w[1]))
        .count();
    let has_digits = of(0) > 0 && of(0) < letters.len();
    let is_hex = letters.iter().all(u8::is_ascii_hexdigit);
    letters.len() >= SHORTEST_RANDOM
        && ((has_digits && 10 * changes >= 3 * letters.len())
            || (has_digits && is_hex && letters.len() >= 16)
            || (of(1) > 0 && of(2) > 0 && 10 * changes >= 4 * letters.len()))
}
