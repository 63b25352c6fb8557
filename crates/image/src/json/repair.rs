//! Escapes of surrogates that are not in pairs, which Go replaces with U+FFFD.

use std::borrow::Cow;

/// Bytes of an escape such as `\ud800`.
const ESCAPE: usize = 6;

/// Replaces halves of surrogate pairs in the escapes of a document.
pub(super) fn surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let length = match (unit(escape), escape.get(ESCAPE..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
            (Some(0xd800..=0xdfff), _) => {
                repaired.push_str("\\ufffd");
                rest = &escape[ESCAPE..];
                continue;
            }
            (Some(_), _) => ESCAPE,
            // Another escape: the escaped character may be a backslash.
            (None, _) => {
                let escaped = escape.chars().nth(1).map_or(0, char::len_utf8);
                1 + escaped
            }
        };
        repaired.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    repaired.push_str(rest);
    Cow::Owned(repaired)
}

/// The unit of UTF-16 that the text begins with, as an escape.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok())?
}
