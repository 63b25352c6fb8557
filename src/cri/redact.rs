//! Takes secrets out of the one kind of free text that is shown: error messages, and out of image references.

use std::borrow::Cow;

use super::call::Subject;

/// Longest error text kept, in bytes.
const MAX_MESSAGE: usize = 1024;

/// What stands where a secret stood.
const HIDDEN: &str = "<redacted>";

/// Shortest request string that is searched for in an error text; shorter ones are words, not secrets.
const SHORTEST_ECHO: usize = 4;

/// Words before `=` or `:` whose value is hidden.
const SECRET_KEYS: [&str; 10] = [
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "credential",
    "signature",
    "apikey",
    "api_key",
    "api-key",
];

/// An image reference without user, password, query and fragment.
pub fn image_reference(reference: &str) -> Cow<'_, str> {
    let cut = reference.find(['?', '#']).unwrap_or(reference.len());
    let reference = &reference[..cut];
    let (scheme, rest) = match reference.find("://") {
        Some(at) => reference.split_at(at + 3),
        None => ("", reference),
    };
    // Only the host part can carry credentials; an `@` behind the first slash starts a digest.
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) if rest[at..].contains('/') || !scheme.is_empty() => {
            Cow::Owned(format!("{scheme}{}", &rest[at + 1..]))
        }
        _ => Cow::Borrowed(reference),
    }
}

/// An error text fit to be shown: strings of the request that are not identity are hidden, then everything that looks
/// like a credential, and it is cut.
///
/// `request` is the uncompressed request message, or `None` if it could not be read; the text may then echo anything
/// and is withheld.
pub fn error_text(text: &str, request: Option<&[u8]>, subject: Option<&Subject>) -> Box<str> {
    let Some(request) = request else {
        return "<withheld: the request could not be read>".into();
    };
    let text = &text[..text.floor_char_boundary(4 * MAX_MESSAGE)];
    let mut text = hide_echoes(text, request, subject);
    text = text
        .split_inclusive(char::is_whitespace)
        .scan(false, |after_scheme, word| {
            Some(scrub_word(word, after_scheme))
        })
        .collect();
    text.truncate(text.floor_char_boundary(MAX_MESSAGE));
    text.into()
}

/// Hides every string of the request in the text, identity apart.
fn hide_echoes(text: &str, request: &[u8], subject: Option<&Subject>) -> String {
    let mut strings = Vec::new();
    collect_strings(request, 0, &mut strings);
    let shown = subject.map(identity_strings).unwrap_or_default();
    strings.retain(|s| text.contains(s) && !shown.contains(s));
    // The longest first: a string may be part of another.
    strings.sort_unstable_by_key(|s| std::cmp::Reverse(s.len()));
    strings
        .into_iter()
        .fold(text.to_owned(), |text, s| text.replace(s, HIDDEN))
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

/// Every length-delimited field that is text, at any depth. A field that is text and also parses as a message is taken
/// as both. Protobuf encoding, "message structure".
fn collect_strings<'a>(mut message: &'a [u8], depth: u8, strings: &mut Vec<&'a str>) -> bool {
    use prost::encoding::{WireType, decode_key, decode_varint};
    while !message.is_empty() {
        let Ok((_, wire_type)) = decode_key(&mut message) else {
            return false;
        };
        let skip = match wire_type {
            WireType::Varint => {
                if decode_varint(&mut message).is_err() {
                    return false;
                }
                continue;
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => match decode_varint(&mut message) {
                Ok(len) => usize::try_from(len).unwrap_or(usize::MAX),
                Err(_) => return false,
            },
            WireType::StartGroup | WireType::EndGroup => return false,
        };
        let Some((field, rest)) = message.split_at_checked(skip) else {
            return false;
        };
        message = rest;
        if wire_type == WireType::LengthDelimited && skip >= SHORTEST_ECHO {
            if depth < 16 {
                collect_strings(field, depth + 1, strings);
            }
            if let Ok(text) = std::str::from_utf8(field) {
                strings.push(text);
            }
        }
    }
    true
}

/// Hides the credential in one word, its trailing white space included. `after_scheme` is whether the word before was
/// an HTTP authentication scheme.
fn scrub_word(word: &str, after_scheme: &mut bool) -> String {
    let body = word.trim_end();
    let space = &word[body.len()..];
    let was_after = std::mem::replace(after_scheme, is_auth_scheme(body));
    if was_after && !body.is_empty() {
        return format!("{HIDDEN}{space}");
    }
    let body = match (body.find("://"), body.rfind('?')) {
        (Some(_), _) => scrub_url(body),
        (None, _) => scrub_pair(body),
    };
    format!("{body}{space}")
}

fn is_auth_scheme(word: &str) -> bool {
    let word = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    ["bearer", "basic", "negotiate"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Takes user, password and query out of a URL with anything around it.
fn scrub_url(word: &str) -> String {
    let at = word.find("://").map_or(0, |i| i + 3);
    let (head, rest) = word.split_at(at);
    let authority_end = rest.find(['/', '?', '#', '"', '\'']).unwrap_or(rest.len());
    let rest = match rest[..authority_end].rfind('@') {
        Some(i) => format!("{HIDDEN}@{}", &rest[i + 1..]),
        None => rest.to_owned(),
    };
    match rest.find('?') {
        None => format!("{head}{rest}"),
        Some(query) => {
            let tail = rest[query..]
                .find(['"', '\'', ')'])
                .map(|i| &rest[query + i..]);
            format!("{head}{}?{HIDDEN}{}", &rest[..query], tail.unwrap_or(""))
        }
    }
}

/// Hides the value of `key=value` and `key:value` with a telling key, and long runs of base64.
fn scrub_pair(word: &str) -> String {
    if let Some(at) = word.find(['=', ':']) {
        let key = word[..at].to_ascii_lowercase();
        if at + 1 < word.len() && SECRET_KEYS.iter().any(|k| key.contains(k)) {
            return format!("{}{HIDDEN}", &word[..=at]);
        }
    }
    if has_long_base64(word) {
        return HIDDEN.to_owned();
    }
    word.to_owned()
}

/// More than forty characters of base64 in a row that are not plain hexadecimal (ids and digests) and not a path.
fn has_long_base64(word: &str) -> bool {
    word.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '-' | '=')))
        .any(|run| {
            run.len() > 40
                && !run.bytes().all(|b| b.is_ascii_hexdigit())
                && run.bytes().any(|b| b.is_ascii_digit())
                && run.bytes().any(|b| b.is_ascii_uppercase())
                && run.bytes().any(|b| b.is_ascii_lowercase())
        })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::{method::Method, peek, v1};
    use super::*;

    #[test]
    fn image_references_lose_credentials_and_query() {
        let cases = [
            ("registry.example/app:1", "registry.example/app:1"),
            ("app@sha256:abc", "app@sha256:abc"),
            ("library/app@sha256:abc", "library/app@sha256:abc"),
            ("me:pw@registry.example/app:1", "registry.example/app:1"),
            (
                "https://me:pw@registry.example/app",
                "https://registry.example/app",
            ),
            ("registry.example/app?sig=1", "registry.example/app"),
            ("", ""),
        ];
        for (reference, want) in cases {
            assert_eq!(image_reference(reference), want, "{reference}");
        }
    }

    #[test]
    fn credentials_in_errors_are_hidden() {
        let cases = [
            (
                "get https://me:pw@r.example/v2/?sig=abc: refused",
                "get https://<redacted>@r.example/v2/?<redacted> refused",
            ),
            (
                "header Authorization: Bearer abc.def",
                "header Authorization: Bearer <redacted>",
            ),
            (
                "login failed token=abc user",
                "login failed token=<redacted> user",
            ),
            (
                "container 4b825dc642cb6eb9a060e54bf8d69288fbee49044b825dc642cb6eb9a060e54b not found",
                "container 4b825dc642cb6eb9a060e54bf8d69288fbee49044b825dc642cb6eb9a060e54b not found",
            ),
            (
                "got eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCQ0RFRkdISUpLTE1OT1AifQ from server",
                "got <redacted> from server",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(&*error_text(text, Some(b""), None), want);
        }
    }

    #[test]
    fn an_echo_of_the_request_is_hidden_but_not_its_identity() {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "sandbox-1".into(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt: 0,
                }),
                command: vec!["/bin/start-me".into()],
                envs: vec![v1::KeyValue {
                    key: "DB".into(),
                    value: b"hunter2!".as_slice().into(),
                }],
                ..Default::default()
            }),
            sandbox_config: None,
        }
        .encode_to_vec();
        let subject = peek::request(Method::CreateContainer, &request);
        let text = "app in sandbox-1: exec /bin/start-me with DB=hunter2! failed";
        assert_eq!(
            &*error_text(text, Some(&request), Some(&subject)),
            "app in sandbox-1: exec <redacted> with DB=<redacted> failed"
        );
    }

    #[test]
    fn an_unread_request_withholds_the_text() {
        assert!(!error_text("hunter2!", None, None).contains("hunter2"));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let text = "ü ".repeat(5000);
        assert!(error_text(&text, Some(b""), None).len() <= MAX_MESSAGE);
    }
}
