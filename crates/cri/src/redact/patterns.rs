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

const QUOTES: [char; 2] = ['"', '\''];

/// Shortest token that can look random.
const SHORTEST_RANDOM: usize = 12;

/// Marks the bytes of `text` that a word outside of the vocabulary must not occupy. `is_known`: the word belongs to the
/// vocabulary.
pub(super) fn mark(text: &str, is_known: &dyn Fn(&str) -> bool, marks: &mut [bool]) {
    for chunk in split(text, |b| b.is_ascii_whitespace()) {
        if let Some(range) = query(text, &chunk) {
            marks[range].fill(true);
        }
        if let Some(range) = user(text, &chunk) {
            marks[range].fill(true);
        }
    }
    for word in split(text, |b| !is_in_name(b)) {
        if let Some(range) = value(text, &word, is_known) {
            marks[range].fill(true);
        }
    }
    for token in split(text, |b| !is_in_token(b)) {
        // Of a path, only its parts are judged.
        let mut parts = text[token.clone()].split('/');
        let is_path = parts.any(|part| part.len() > 2 && is_known(part));
        if !is_path && looks_random(&text[token.clone()]) {
            marks[token].fill(true);
        }
    }
    for piece in split(text, |b| !b.is_ascii_alphanumeric()) {
        if looks_random(&text[piece.clone()]) {
            marks[piece].fill(true);
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

fn is_in_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')
}

fn is_in_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// The value that follows a name: of a credential, of an environment variable, a flag or anything that is not known.
fn value(text: &str, word: &Range<usize>, is_known: &dyn Fn(&str) -> bool) -> Option<Range<usize>> {
    let name = &text[word.clone()];
    let rest = &text[word.end..];
    let last = name_parts(name).next_back()?.to_ascii_lowercase();
    let names_credential = ends_with_one_of(&last, &NAMES);
    let names_user = ends_with_one_of(&last, &USERS);
    let separators =
        rest.find(|c: char| !matches!(c, ':' | '=' | ' ' | '"' | '\'' | '\\' | '>'))?;
    let between = &rest[..separators];
    // A path in quotes and what happened to it: `"/etc/passwd": not a directory`.
    if text[..word.start].ends_with('/')
        && between.starts_with(QUOTES)
        && !between.ends_with(QUOTES)
    {
        return None;
    }
    let is_variable = name.len() > 1
        && name.bytes().any(|b| b.is_ascii_uppercase())
        && !name.bytes().any(|b| b.is_ascii_lowercase());
    let is_secret = if between.starts_with('=') {
        names_credential
            || names_user
            || is_variable
            || name.starts_with('-')
            || name_parts(name).any(|part| !is_known(part))
    } else {
        let is_near = !between.is_empty() && between.len() <= 5;
        is_near && (names_credential || (names_user && between.starts_with(':')))
    };
    if !is_secret {
        return None;
    }
    let begin = word.end + separators;
    // A quoted value ends with its quote, any other with a blank.
    let quote = between.chars().rev().find(|c| QUOTES.contains(c));
    let value = &text[begin..];
    let end = match quote {
        Some(quote) => value.find(quote),
        None => value.find(|c: char| c.is_ascii_whitespace()),
    };
    Some(begin..begin + end.unwrap_or(value.len()))
}

/// The words of a name, such as `api` and `key` of `api_key`.
fn name_parts(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
}

/// Returns whether a word is one of `names`, or ends with a long one of them.
fn ends_with_one_of(word: &str, names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| word == *name || (name.len() > 5 && word.ends_with(name)))
}

/// Letters and digits in no order, as in keys and tokens; also the beginning of a JSON object in base64.
pub(super) fn looks_random(token: &str) -> bool {
    let letters: Vec<_> = token.bytes().filter(u8::is_ascii_alphanumeric).collect();
    if token.starts_with("eyJ") && letters.len() >= SHORTEST_RANDOM {
        return true;
    }
    let changes = letters
        .windows(2)
        .filter(|w| character_class(w[0]) != character_class(w[1]))
        .count();
    let digits = letters.iter().filter(|b| b.is_ascii_digit()).count();
    let has_digits = digits > 0 && digits < letters.len();
    let has_both_cases =
        letters.iter().any(u8::is_ascii_lowercase) && letters.iter().any(u8::is_ascii_uppercase);
    let is_hex = letters.iter().all(u8::is_ascii_hexdigit);
    letters.len() >= SHORTEST_RANDOM
        && ((has_digits && 10 * changes >= 3 * letters.len())
            || (has_digits && is_hex && letters.len() >= 16)
            || (has_both_cases && 10 * changes >= 4 * letters.len()))
}

#[derive(PartialEq)]
enum CharacterClass {
    Digit,
    Lowercase,
    Uppercase,
}

fn character_class(letter: u8) -> CharacterClass {
    match letter {
        b'0'..=b'9' => CharacterClass::Digit,
        b'a'..=b'z' => CharacterClass::Lowercase,
        _ => CharacterClass::Uppercase,
    }
}
