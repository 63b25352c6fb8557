//! Removes secrets from error messages, the only free text that is shown, and from image references.
//!
//! A runtime quotes its input: truncated, escaped, in other letters, split over lines, from the previous request, or from
//! the response it did not send. An error text is split into words, and known harmless ones are shown: terms of the field
//! (`words.rs`), the identity of the call, ids that look like a runtime's, and short numbers.
//!
//! [`error_text`] hides all other words. [`text_of_call`] shows a word that quotes no secret of any remembered request
//! ([`Secrets`]) and does not look like a secret (`patterns.rs`), provided that all requests with secrets that the text can be
//! expected to quote are known. [`server_words`] hides only words that look like a secret.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::error_chain::shortened;
use super::method::Method;
use super::secrets::{self, Mark, Secrets, Value};
use super::subject::Subject;
use super::visible::visible;
use super::words;

/// Longest error text kept, in bytes. Of a longer one the beginning and the end are: the cause is at the end.
const MAX_MESSAGE: usize = 1024;

/// Replaces redacted text.
const HIDDEN: &str = "<redacted>";

/// Length of the ids that containerd and CRI-O make, and of a SHA-256 digest, in hexadecimal digits.
const ID_LENGTH: usize = 64;

/// Largest request that is searched for ids, in bytes.
const MAX_SEARCH: usize = 1 << 20;

/// An image reference without user, password, query and fragment.
pub fn image_reference(reference: &str) -> Cow<'_, str> {
    let cut = reference.find(['?', '#']).unwrap_or(reference.len());
    let reference = &reference[..cut];
    let (scheme, rest) = match reference.find("://") {
        Some(at) => reference.split_at(at + 3),
        None => ("", reference),
    };
    // A digest follows the last `@`, credentials precede another: a password may contain slashes and more `@`.
    let name_end = rest.rfind('@').filter(|at| is_digest(&rest[at + 1..]));
    match rest[..name_end.unwrap_or(rest.len())].rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}{}", &rest[at + 1..])),
        None => Cow::Borrowed(reference),
    }
}

/// Returns whether a text begins with a digest.
fn is_digest_of(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != ':');
    is_digest(&text[..end.unwrap_or(text.len())])
}

/// `ALGORITHM:HEX` with a registered algorithm (OCI image specification, "Descriptors").
fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        matches!(algorithm, "sha256" | "sha384" | "sha512" | "blake3")
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// The error text of a backend, redacted: words that are not known are hidden.
///
/// `request` is the uncompressed request message, or `None` if it could not be read; ids are then hidden, since they could
/// be keys. `subject` and the name of the `backend` are shown wherever they occur.
pub fn error_text(
    text: &str,
    request: Option<&[u8]>,
    subject: Option<&Subject>,
    backend: Option<&str>,
) -> Box<str> {
    let text = shortened(text, 4 * MAX_MESSAGE);
    redacted(&text, Judge::new(request, subject, backend))
}

/// The error text of a call, redacted by value if the secrets that it can be expected to quote are known, else as
/// [`error_text`] does.
pub fn text_of_call(
    text: &str,
    (method, request): (Method, Option<&[u8]>),
    subject: Option<&Subject>,
    backend: Option<&str>,
    secrets: &Secrets,
) -> Box<str> {
    let text = shortened(text, 4 * MAX_MESSAGE);
    let mut judge = Judge::new(request, subject, backend);
    judge
        .identity
        .extend(program(method, request).into_iter().flat_map(pieces));
    judge.marks = secrets.find(&text, method, request, subject).map(|quoted| {
        let mut suspicious = vec![false; text.len()];
        patterns::mark(&text, &is_known, &mut suspicious);
        Marks { quoted, suspicious }
    });
    redacted(&text, judge)
}

/// The program of a request with a command.
fn program(method: Method, request: Option<&[u8]>) -> Option<&str> {
    let mut program = None;
    let request = request.filter(|request| request.len() <= MAX_SEARCH)?;
    secrets::each_value(method, request, &mut |value| {
        if let Value::Program(path) = value {
            program = std::str::from_utf8(path).ok();
        }
    })?;
    program
}

/// The text of a registry or another server about a request, for people. Hides words that look like a secret or follow the name of
/// one.
pub fn server_words(text: &str) -> Box<str> {
    let text = visible(&shortened(text, MAX_MESSAGE));
    let mut suspicious = vec![false; text.len()];
    patterns::mark(&text, &is_known, &mut suspicious);
    let mut out = Shown::default();
    let mut rest = &*text;
    while let Some(start) = rest.find(is_in_word) {
        let (between, from_word) = rest.split_at(start);
        let end = from_word.find(|c| !is_in_run(c)).unwrap_or(from_word.len());
        let word = from_word[..end].trim_end_matches(JOINERS);
        let at = text.len() - from_word.len();
        let is_shown = pieces(word).all(|piece| {
            let begin = at + (piece.as_ptr() as usize - word.as_ptr() as usize);
            is_known(piece) || !suspicious[begin..begin + piece.len()].contains(&true)
        });
        out.put_between(between);
        if is_shown {
            out.put_word(word);
        } else {
            out.hide();
        }
        rest = &from_word[word.len()..];
    }
    out.put_between(rest);
    out.finish()
}

fn redacted(text: &str, mut judge: Judge<'_>) -> Box<str> {
    let objects = objects::names(text);
    let mut out = Shown::default();
    let mut rest = text;
    while let Some(start) = rest.find(is_in_word) {
        let (between, from_word) = rest.split_at(start);
        let time =
            numbers::time_of_day(from_word).filter(|time| judge.admits_time(text, time, between));
        if let Some(time) = time {
            out.put_between(between);
            out.put_word(time);
            rest = &from_word[time.len()..];
            continue;
        }
        let end = from_word.find(|c| !is_in_run(c)).unwrap_or(from_word.len());
        let word = from_word[..end].trim_end_matches(JOINERS);
        out.put_between(between);
        let at = text.len() - from_word.len();
        let is_object = objects
            .iter()
            .any(|name| name.start <= at && at + word.len() <= name.end);
        if is_object || judge.admits(word, &text[..at]) {
            out.put_word(word)
        } else {
            out.hide()
        }
        rest = &from_word[word.len()..];
    }
    out.put_between(rest);
    out.finish()
}

/// One of criscope's own texts, with the middle left out if it is too long.
pub fn own_text(text: &str) -> Box<str> {
    shortened(text, MAX_MESSAGE).into()
}

/// Characters within a word, such as a host or file name, which is shown in full or not at all.
const JOINERS: [char; 4] = ['.', '_', '-', '+'];

fn is_in_run(c: char) -> bool {
    is_in_word(c) || JOINERS.contains(&c)
}

/// Everything beyond ASCII counts as a letter, so that no script and no broken encoding passes.
fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii()
}

fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c| !is_in_word(c)).filter(|p| !p.is_empty())
}

fn identity_strings(subject: &Subject) -> Vec<&str> {
    let mut shown = Vec::new();
    if let Some(pod) = &subject.pod {
        shown.extend([&*pod.namespace, &*pod.name, &*pod.uid]);
    }
    shown.extend(subject.container.as_ref().map(|c| &*c.name));
    shown.extend(subject.sandbox_id.as_deref());
    shown.extend(subject.container_id.as_deref());
    shown.extend(subject.image.as_deref());
    shown.extend(subject.handler.as_deref());
    shown
}

/// Decides word by word.
struct Judge<'a> {
    /// The pieces of all identity strings.
    identity: HashSet<&'a str>,
    /// The request, if ids that do not occur in it may be shown.
    request: Option<&'a [u8]>,
    /// Digits shown since the last word that is not a number.
    digits: usize,
    /// What must be hidden of a word that is not known; `None` if all of it.
    marks: Option<Marks>,
}

/// For each byte of the text, whether it must be hidden.
struct Marks {
    /// It belongs to what quotes a secret.
    quoted: Vec<Mark>,
    /// It belongs to what looks like a secret.
    suspicious: Vec<bool>,
}

impl Marks {
    fn admit(&self, piece: Range<usize>) -> bool {
        !self.quote_secret(piece.clone()) && !self.suspicious[piece].contains(&true)
    }

    fn quote_secret(&self, piece: Range<usize>) -> bool {
        self.quoted[piece].iter().any(|mark| *mark != Mark::None)
    }
}

impl<'a> Judge<'a> {
    fn new(
        request: Option<&'a [u8]>,
        subject: Option<&'a Subject>,
        backend: Option<&'a str>,
    ) -> Self {
        let mut identity = subject.map(identity_strings).unwrap_or_default();
        identity.extend(backend);
        Judge {
            identity: identity.into_iter().flat_map(pieces).collect(),
            request: request.filter(|bytes| bytes.len() <= MAX_SEARCH),
            digits: 0,
            marks: None,
        }
    }

    /// Returns whether a time may be shown. It has more digits than other numbers, in a form that no key has; fractions of its
    /// seconds have any digits, so they are shown only where secrets are known.
    fn admits_time(&mut self, text: &str, time: &str, before: &str) -> bool {
        let at = time.as_ptr() as usize - text.as_ptr() as usize;
        let is_shown = match &self.marks {
            Some(marks) => !marks.quote_secret(at..at + time.len()),
            None => !time.contains('.'),
        };
        self.digits = 0;
        is_shown && !before.trim_end_matches(['"', '\'']).ends_with('=')
    }

    /// Returns whether the word may be shown, which follows the text `before`.
    fn admits(&mut self, word: &str, before: &str) -> bool {
        let at = before.len();
        let is_value = numbers::is_value_behind(before);
        if pieces(word).all(|p| self.identity.contains(p)) {
            self.digits = 0;
            return true;
        }
        if let Some(marks) = &self.marks {
            let quoted = &marks.quoted[at..at + word.len()];
            if quoted.iter().all(|mark| *mark == Mark::Named) {
                self.digits = 0;
                return true;
            }
            if quoted.contains(&Mark::Encoded) {
                self.digits = 0;
                return false;
            }
        }
        if word.len() == ID_LENGTH && word.bytes().all(is_lower_hex) {
            let request = self.request.filter(|_| !is_value);
            let is_quoted = self
                .marks
                .as_ref()
                .is_some_and(|marks| !marks.quoted[at..at + ID_LENGTH].contains(&Mark::None));
            return !is_quoted && request.is_some_and(|request| !holds(request, word));
        }
        if numbers::is_address(word) {
            self.digits = 0;
            return !is_value;
        }
        if !pieces(word).all(numbers::is_number) {
            self.digits = 0;
        }
        // As runc's `init-p`, whose pieces alone say nothing.
        if words::is_known(word) {
            return true;
        }
        let shown = pieces(word).filter(|p| !self.identity.contains(p));
        self.digits += shown.filter_map(numbers::digits).sum::<usize>();
        let may_be_amount =
            self.digits <= numbers::MOST_DIGITS && (!is_value || numbers::is_amount_behind(before));
        pieces(word).all(|p| {
            let begin = at + (p.as_ptr() as usize - word.as_ptr() as usize);
            self.identity.contains(p)
                || is_known(p)
                || (may_be_amount && (numbers::is_number(p) || numbers::is_quantity(p)))
                || self.admits_unknown(p, begin)
        })
    }

    /// Returns whether a piece outside of the vocabulary may be shown. Numbers have their own rule, and no other script is
    /// known.
    fn admits_unknown(&self, piece: &str, begin: usize) -> bool {
        let marks = self.marks.as_ref();
        !numbers::is_number(piece)
            && piece.is_ascii()
            && marks.is_some_and(|marks| marks.admit(begin..begin + piece.len()))
    }
}

const fn is_lower_hex(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns whether these digits, or the bytes they encode, are part of the message.
fn holds(message: &[u8], hex: &str) -> bool {
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    let bytes: Vec<_> = pairs
        .iter()
        .map(|[high, low]| hex_digit(*high) << 4 | hex_digit(*low))
        .collect();
    let mut texts = message.windows(hex.len());
    texts.any(|w| w.eq_ignore_ascii_case(hex.as_bytes()))
        || message.windows(bytes.len()).any(|w| w == bytes)
}

const fn hex_digit(b: u8) -> u8 {
    if b <= b'9' { b - b'0' } else { b - b'a' + 10 }
}

/// A word of the vocabulary, or several in `CamelCase`.
fn is_known(piece: &str) -> bool {
    let lower = piece.to_ascii_lowercase();
    if words::is_known(piece) {
        return true;
    }
    if !piece.bytes().all(|b| b.is_ascii_alphabetic()) {
        return words::is_known(&lower);
    }
    let humps = humps(piece);
    humps.iter().all(|hump| {
        // With short words, random letters would pass.
        (hump.len() >= 3 || humps.len() == 1) && words::is_known(&hump.to_ascii_lowercase())
    })
}

/// The words of `CamelCaseHTTPText`.
fn humps(piece: &str) -> Vec<&str> {
    let bytes = piece.as_bytes();
    let mut humps = Vec::new();
    let mut start = 0;
    for i in 1..bytes.len() {
        let begins = bytes[i].is_ascii_uppercase()
            && (bytes[i - 1].is_ascii_lowercase()
                || bytes.get(i + 1).is_some_and(u8::is_ascii_lowercase));
        if begins {
            humps.push(&piece[start..i]);
            start = i;
        }
    }
    humps.push(&piece[start..]);
    humps
}

/// The redacted text. Adjacent hidden words are merged.
#[derive(Default)]
struct Shown {
    text: String,
    /// Length of the text after the last [`HIDDEN`], if only separators follow it.
    hidden_at: Option<usize>,
}

/// Longest separator that is dropped between two hidden words, in bytes.
const MOST_BETWEEN: usize = 3;

impl Shown {
    fn put_between(&mut self, text: &str) {
        let chars = text.chars();
        self.text
            .extend(chars.map(|c| if c.is_control() { ' ' } else { c }));
    }

    fn put_word(&mut self, word: &str) {
        self.text.push_str(word);
        self.hidden_at = None;
    }

    fn hide(&mut self) {
        match self.hidden_at {
            Some(end) if self.text.len() - end <= MOST_BETWEEN => self.text.truncate(end),
            _ => self.text.push_str(HIDDEN),
        }
        self.hidden_at = Some(self.text.len());
    }

    fn finish(self) -> Box<str> {
        shortened(&self.text, MAX_MESSAGE).into()
    }
}

mod numbers;
mod objects;
mod patterns;

#[cfg(test)]
mod own_words;
#[cfg(test)]
mod tests;
