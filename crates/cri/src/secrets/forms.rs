//! How a value is found again in a text that quotes it in another form: a part of it, in other letters, escaped, encoded,
//! quoted word by word.
//!
//! Both the value and the text are reduced to their letters and digits, in lower case. A key is a window of these, or all of
//! them if a value has less.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::super::words;

/// How often escapes are resolved: a value in JSON that is quoted in JSON has two layers.
const MOST_LAYERS: usize = 3;

/// Shortest run that is decoded from base64, in characters.
const SHORTEST_BASE64: usize = 8;

/// So many letters occur in random bytes by chance.
const BY_CHANCE: usize = 2;

/// Most digits of a number that is shown wherever it occurs, as in [`super::super::redact`].
const MOST_DIGITS: usize = 6;

/// The key of the last `length` letters of `letters`.
const fn window(length: usize, letters: u64) -> u64 {
    (length as u64) << 56 | letters & (!0 >> (64 - 8 * length))
}

/// All letters of a short value.
const fn whole(length: usize, letters: u64) -> u64 {
    1 << 63 | window(length, letters)
}

/// Calls `f` with the keys of a secret: its windows of `length` letters, without windows within words that are shown anyway.
/// `length` is at most 6.
pub(super) fn keys(secret: &[u8], length: usize, f: &mut impl FnMut(u64)) {
    keys_of_form(secret, length, f);
    let mut layer = Layer::new(secret);
    for _ in 0..MOST_LAYERS {
        match layer.unescaped() {
            Some(plain) => layer = plain,
            None => break,
        }
        keys_of_form(&layer.bytes, length, f);
    }
    for run in layer.runs(is_base64, SHORTEST_BASE64) {
        let decoded = base64(&layer.bytes[run], 0);
        if is_text(&decoded) {
            keys_of_form(&decoded, length, f);
        }
    }
}

fn keys_of_form(value: &[u8], length: usize, f: &mut impl FnMut(u64)) {
    if is_address_or_number(value) {
        return;
    }
    let (mut letters, mut count, mut known) = (0, 0, 0);
    for piece in value.split(|b| !b.is_ascii_alphanumeric()) {
        let is_known = words::is_word(piece);
        for b in piece {
            letters = letters << 8 | u64::from(b.to_ascii_lowercase());
            count += 1;
            known = if is_known { known + 1 } else { 0 };
            if count >= length && known < length {
                f(window(length, letters));
            }
        }
    }
    if (1..length).contains(&count) && known < count {
        f(whole(count, letters));
    }
}

/// A value of one's own that says nothing secret: what the kubelet adds for each Service, and small numbers.
fn is_address_or_number(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else {
        return false;
    };
    let text = text.split_once("://").map_or(text, |(_, text)| text);
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    is_short_number(port) && (is_short_number(host) || host.parse::<Ipv4Addr>().is_ok())
}

fn is_short_number(text: &str) -> bool {
    text.len() <= MOST_DIGITS && text.bytes().all(|b| b.is_ascii_digit())
}

/// What a byte of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Not part of a secret that is known.
    None,
    /// Part of a quoted secret. A word of the field may be shown all the same.
    Quoted,
    /// Part of an encoded secret, which is not a word even if it looks like one.
    Encoded,
    /// Part of a path or device that a request names as such. Takes precedence over the other marks.
    Named,
}

/// Most places of a text at which a name is looked for.
const MOST_NAMES: usize = 256;

/// Longest name that is looked for, in bytes.
const LONGEST_NAME: usize = 512;

/// Returns whether a plain value is recognised in texts as a whole: a path, or the name of a CDI device.
pub(super) fn is_name(value: &[u8]) -> bool {
    (4..=LONGEST_NAME).contains(&value.len()) && (value.starts_with(b"/") || is_device(value))
}

/// `VENDOR/CLASS=NAME` (Container Device Interface, "CDI device names"), in letters that such names may have.
fn is_device(value: &[u8]) -> bool {
    let parts = std::str::from_utf8(value).ok().and_then(|value| {
        let (vendor, rest) = value.split_once('/')?;
        let (class, name) = rest.split_once('=')?;
        Some((vendor, class, name))
    });
    parts.is_some_and(|(vendor, class, name)| {
        is_plain(vendor, b"-_.") && is_plain(class, b"-_") && is_plain(name, b"-_.:")
    })
}

fn is_plain(part: &str, punctuation: &[u8]) -> bool {
    let mut bytes = part.bytes();
    !part.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || punctuation.contains(&b))
}

/// Returns whether the program of a command is recognised in texts: as a path, or as a name in quotes.
pub(super) fn is_program(value: &[u8]) -> bool {
    (2..=LONGEST_NAME).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

/// Marks the paths, devices and programs in `text` that are known to `holds` as a whole. A runtime also names paths below the root
/// of a container, and puts a program without a path in quotes.
pub(super) fn mark_names(text: &str, holds: &dyn Fn(&[u8]) -> bool, marks: &mut [Mark]) {
    let bytes = text.as_bytes();
    let quotes = (0..bytes.len()).filter(|at| bytes[*at] == b'"');
    for begin in quotes.take(MOST_NAMES).map(|quote| quote + 1) {
        let length = bytes[begin..].iter().position(|b| *b == b'"');
        let name = length.map(|length| &bytes[begin..begin + length]);
        if let Some(name) = name.filter(|name| is_program(name) && holds(name)) {
            marks[begin..begin + name.len()].fill(Mark::Named);
        }
    }
    let slashes = (0..bytes.len()).filter(|at| bytes[*at] == b'/');
    for slash in slashes.take(MOST_NAMES) {
        // The slash begins a path, or stands behind the vendor of a device.
        let before = bytes[..slash].iter().rev();
        let vendor = before.take_while(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b));
        for begin in [slash, slash - vendor.count()] {
            if let Some(length) = name_at(&bytes[begin..], holds) {
                marks[begin..begin + length].fill(Mark::Named);
            }
        }
    }
}

/// The length of the known name with which a text begins.
fn name_at(text: &[u8], holds: &dyn Fn(&[u8]) -> bool) -> Option<usize> {
    let text = &text[..text.len().min(LONGEST_NAME + 2)];
    let end = text
        .iter()
        .position(|b| b.is_ascii_whitespace() || b"\"'`()[]{}<>,;\\".contains(b));
    let run = &text[..end.unwrap_or(text.len())];
    let last = run.iter().rposition(|b| !matches!(b, b'.' | b':'));
    let sentence = &run[..last.map_or(0, |at| at + 1)];
    let up_to_colon = run.iter().position(|b| *b == b':').unwrap_or(run.len());
    let mut candidates = [run, sentence, &run[..up_to_colon]].into_iter();
    let known = candidates.find(|name| is_name(name) && holds(name));
    known.map(<[u8]>::len)
}

/// Marks the bytes of `text` that quote a secret whose keys of `length` letters are known to `holds`.
pub(super) fn mark(text: &str, length: usize, holds: &dyn Fn(u64) -> bool, marks: &mut [Mark]) {
    let mut layer = Layer::new(text.as_bytes());
    for _ in 0..=MOST_LAYERS {
        layer.mark(length, holds, marks);
        match layer.unescaped() {
            Some(plain) => layer = plain,
            None => break,
        }
    }
}

/// A text without some layers of escapes.
struct Layer {
    bytes: Vec<u8>,
    /// Where each byte stands in the original text.
    at: Vec<Range<usize>>,
}

impl Layer {
    fn new(text: &[u8]) -> Self {
        Self {
            bytes: text.to_vec(),
            at: (0..text.len()).map(|at| at..at + 1).collect(),
        }
    }

    fn mark(&self, length: usize, holds: &dyn Fn(u64) -> bool, marks: &mut [Mark]) {
        for place in found(&self.bytes, length, holds).into_iter().flatten() {
            let with = if self.at[place].len() == 1 {
                Mark::Quoted
            } else {
                Mark::Encoded
            };
            self.mark_place(place, with, marks);
        }
        for run in self.runs(is_base64, SHORTEST_BASE64) {
            let encoded = &self.bytes[run.clone()];
            if (0..4).any(|skip| tells(&base64(encoded, skip), length, holds)) {
                run.for_each(|place| self.mark_place(place, Mark::Encoded, marks));
            }
        }
        for run in self.runs(|b| b.is_ascii_hexdigit(), 2 * length) {
            let encoded = &self.bytes[run.clone()];
            if (0..2).any(|skip| tells(&hex(encoded, skip), length, holds)) {
                run.for_each(|place| self.mark_place(place, Mark::Encoded, marks));
            }
        }
    }

    /// Marks the bytes of the original text that a byte of this layer stands for, unless they have a greater mark.
    fn mark_place(&self, place: usize, with: Mark, marks: &mut [Mark]) {
        for mark in &mut marks[self.at[place].clone()] {
            *mark = with.max(*mark);
        }
    }

    /// The longest runs of such bytes, of at least so many.
    fn runs(&self, is: impl Fn(u8) -> bool, shortest: usize) -> Vec<Range<usize>> {
        let (mut runs, mut begin) = (Vec::new(), 0);
        for at in 0..=self.bytes.len() {
            if self.bytes.get(at).is_some_and(|b| is(*b)) {
                continue;
            }
            if at - begin >= shortest {
                runs.push(begin..at);
            }
            begin = at + 1;
        }
        runs
    }

    /// The text without its outermost escapes: those of URLs, of string literals in Go, JSON, C and Rust, and of HTML. `None`
    /// if it has none.
    fn unescaped(&self) -> Option<Self> {
        let (mut bytes, mut at) = (Vec::new(), Vec::new());
        let mut here = 0;
        while here < self.bytes.len() {
            let (byte, end) = match escape(&self.bytes[here..]) {
                Some((byte, length)) => (byte, here + length),
                None => (self.bytes[here], here + 1),
            };
            bytes.push(byte);
            at.push(self.at[here].start..self.at[end - 1].end);
            here = end;
        }
        (bytes.len() < self.bytes.len()).then_some(Self { bytes, at })
    }
}

/// The places of the windows of a text, and of its short runs of words, whose keys are known.
fn found(text: &[u8], length: usize, holds: &dyn Fn(u64) -> bool) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    let places: Vec<_> = (0..text.len()).filter(|at| is_letter(text, *at)).collect();
    for first in 0..places.len() {
        let is_begin = places[first] == 0 || !is_letter(text, places[first] - 1);
        let mut letters = 0;
        for (count, at) in (1..=length).zip(&places[first..]) {
            letters = letters << 8 | u64::from(text[*at].to_ascii_lowercase());
            let key = if count == length {
                window(length, letters)
            } else if is_begin && !is_letter(text, at + 1) {
                whole(count, letters)
            } else {
                continue;
            };
            if holds(key) {
                found.push(places[first..first + count].to_vec());
            }
        }
    }
    found
}

fn is_letter(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_alphanumeric)
}

/// Returns whether decoded bytes quote a secret. Words of eight letters decode to something, in which a letter or two occur
/// by chance: a secret as short as that counts where all else is text, too.
fn tells(decoded: &[u8], length: usize, holds: &dyn Fn(u64) -> bool) -> bool {
    let found = found(decoded, length, holds);
    found.iter().any(|places| places.len() > BY_CHANCE) || (!found.is_empty() && is_text(decoded))
}

/// The escape at the beginning of a text: its byte, a blank if it is no letter, and its length.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    match text.first()? {
        b'%' => Some((number(text.get(1..3)?, 16)?, 3)),
        b'&' => {
            let end = text.iter().take(10).position(|b| *b == b';')?;
            let byte = match &text[1..end] {
                [b'#', b'x' | b'X', hex @ ..] => number(hex, 16)?,
                [b'#', decimal @ ..] => number(decimal, 10)?,
                name if !name.is_empty() && name.iter().all(u8::is_ascii_alphabetic) => b' ',
                _ => return None,
            };
            Some((byte, end + 1))
        }
        b'\\' => {
            // An escape that was escaped has several of them.
            let slashes = text.iter().take_while(|b| **b == b'\\').count();
            let rest = &text[slashes..];
            let (byte, length) = literal(rest).unwrap_or((b' ', 0));
            Some((byte, slashes + length)).filter(|(_, length)| *length > 1)
        }
        _ => None,
    }
}

/// What follows the backslash in a string literal.
fn literal(rest: &[u8]) -> Option<(u8, usize)> {
    match rest.first()? {
        b'x' => hex_escape(rest, 1..3),
        b'u' if rest.get(1) == Some(&b'{') => {
            let end = rest.iter().take(10).position(|b| *b == b'}')?;
            Some((number(&rest[2..end], 16)?, end + 1))
        }
        b'u' => hex_escape(rest, 1..5),
        b'U' => hex_escape(rest, 1..9),
        b'0'..=b'7' => match rest.get(..3).and_then(|digits| number(digits, 8)) {
            Some(byte) => Some((byte, 3)),
            None => Some((b' ', 1)),
        },
        b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'a' => Some((b' ', 1)),
        _ => None,
    }
}

fn hex_escape(rest: &[u8], digits: Range<usize>) -> Option<(u8, usize)> {
    let end = digits.end;
    Some((number(rest.get(digits)?, 16)?, end))
}

/// The byte of that number; a blank for a larger one, which is no ASCII.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let number = u32::from_str_radix(digits, radix).ok()?;
    Some(u8::try_from(number).unwrap_or(b' '))
}

fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_')
}

/// The bytes that a run encodes in base64, of either alphabet, if `skip` of its characters are left out.
fn base64(run: &[u8], skip: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(run.len());
    let (mut bits, mut count) = (0_u32, 0);
    for b in run.iter().skip(skip) {
        bits = bits << 6 | u32::from(base64_digit(*b));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

fn base64_digit(b: u8) -> u8 {
    match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    }
}

fn hex(run: &[u8], skip: usize) -> Vec<u8> {
    let (pairs, _) = run[skip..].as_chunks::<2>();
    pairs
        .iter()
        .map(|[a, b]| hex_digit(*a) << 4 | hex_digit(*b))
        .collect()
}

fn hex_digit(b: u8) -> u8 {
    (b as char).to_digit(16).unwrap_or(0) as u8
}

fn is_text(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|b| matches!(b, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
}
