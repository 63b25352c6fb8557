//! What a server says in the body of an error, as one short line: the errors of a registry (OCI distribution-spec, "Error Codes"), of a
//! token service (RFC 6749, 5.2), of a store of blobs (XML), or plain text. Who sends them may not be trusted.

use reqwest::header::{AsHeaderName, HeaderMap};
use serde_json::Value;

/// Maximum length of one server's words, in characters.
const MAX_WORDS: usize = 300;
/// Most characters of one detail.
const MAX_DETAIL: usize = 120;
/// Most errors of one answer.
const MAX_ERRORS: usize = 3;

/// The words of a body; empty if it has none for people.
pub(super) fn words(content_type: &str, body: &[u8]) -> String {
    if body.contains(&0) {
        return String::new();
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let found = match serde_json::from_str::<Value>(text) {
        Ok(value) => json_words(&value),
        Err(_) if text.starts_with('<') || content_type.contains("html") => markup_words(text),
        Err(_) => text.to_owned(),
    };
    clean(&found, MAX_WORDS)
}

/// Text of others on one line: without control characters, characters that hide or turn text, and double quotes, in which errors put it;
/// of URLs neither users nor queries remain. At most this many characters.
pub(super) fn clean(text: &str, most: usize) -> String {
    let plain: String = without_escapes(text)
        .chars()
        .map(|c| match c {
            '"' => '\'',
            c if c.is_control() => ' ',
            c => c,
        })
        .filter(|c| !is_invisible(*c))
        .collect();
    let words: Vec<_> = plain.split_whitespace().map(without_secrets).collect();
    let line = words.join(" ");
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// A header as text; empty if there is none.
pub(super) fn header_text(headers: &HeaderMap, name: impl AsHeaderName) -> String {
    let value = headers.get(name);
    let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    text.unwrap_or_default()
}

/// A quoted text (RFC 9110, 5.6.4) and what follows it.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    None
}

/// A text without the sequences that control a terminal (ECMA-48, 5.4): `ESC [ ... letter`.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    plain.extend(parts.next());
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c));
        plain.push(' ');
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

/// Directional marks, line separators and characters without a glyph (Unicode, general category Cf).
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A word without user, password, query and fragment, if it is a URL.
fn without_secrets(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = &rest[..end];
    let host = rest.find('/').unwrap_or(rest.len());
    let begin = rest[..host].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[begin..])
}

fn json_words(value: &Value) -> String {
    if let Some(Value::Array(errors)) = field(value, "errors") {
        let all: Vec<_> = errors.iter().take(MAX_ERRORS).map(error_words).collect();
        let said: Vec<_> = all.into_iter().filter(|one| !one.is_empty()).collect();
        return said.join("; ");
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) => match field(value, "error") {
            // As Google writes it: an object in place of a text.
            Some(inner @ Value::Object(_)) => error_words(inner),
            _ => error_words(value),
        },
        _ => String::new(),
    }
}

/// Code, message and detail of one error, under any of their usual names.
fn error_words(error: &Value) -> String {
    if let Value::String(text) = error {
        return text.clone();
    }
    let code = first_of(error, &["code", "error", "status"]);
    let message = first_of(error, &["message", "error_description", "msg", "reason"]);
    let detail = first_of(error, &["detail", "details"]);
    let mut said: Vec<_> = [code, message]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    if !detail.is_empty() && !said.contains(&detail) {
        let detail = clean(&detail, MAX_DETAIL);
        if said.is_empty() {
            return detail;
        }
        said = vec![format!("{} ({detail})", said.join(": "))];
    }
    said.join(": ")
}

/// The first of these fields with a text.
fn first_of(error: &Value, names: &[&str]) -> String {
    let found = names.iter().filter_map(|name| field(error, name));
    let mut texts = found.filter_map(shown);
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

/// A field of an object, in any case, as Go reads it.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    let mut found = fields
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value)
}

/// A value as text; `None` if it is empty.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(_) => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(all) if all.is_empty() => None,
        Value::Object(fields) if fields.is_empty() => None,
        other => Some(other.to_string()),
    }
}

/// The title of a web page, or code and message of an error in XML, as stores of blobs send it.
fn markup_words(text: &str) -> String {
    let parts = ["Code", "Message"].map(|name| element(text, name));
    let said: Vec<_> = parts.into_iter().flatten().collect();
    if said.is_empty() {
        return element(text, "title").unwrap_or_default().to_owned();
    }
    said.join(": ")
}

/// The content of the first element of this name without attributes.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let begin = lower.find(&format!("<{name}>"))? + name.len() + 2;
    let end = begin + lower[begin..].find(&format!("</{name}>"))?;
    Some(&text[begin..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> String {
        words("application/json", body.as_bytes())
    }

    #[test]
    fn the_errors_of_registries_and_their_friends() {
        for (body, said) in [
            (
                r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}"#,
                "TOOMANYREQUESTS: You have reached your pull rate limit.",
            ),
            (
                r#"{"errors":[{"code":"DENIED","message":"no","detail":"ask the team"},{"code":"","message":""},{"message":"again"}]}"#,
                "DENIED: no (ask the team); again",
            ),
            (
                r#"{"Errors":[{"Code":"UNAUTHORIZED","Message":"m","detail":[{"Type":"repository","Name":"a"}]}]}"#,
                "UNAUTHORIZED: m ([{'Name':'a','Type':'repository'}])",
            ),
            (
                r#"{"errors":[{"code":"A","message":"m","detail":{}}]}"#,
                "A: m",
            ),
            (
                r#"{"errors":[{"code":"A","message":"m","detail":"m"}]}"#,
                "A: m",
            ),
            (r#"{"errors":["plain"]}"#, "plain"),
            (r#"{"errors":null,"message":"m"}"#, "m"),
            (r#"{"errors":[]}"#, ""),
            (
                r#"{"details":"incorrect username or password"}"#,
                "incorrect username or password",
            ),
            (
                r#"{"error":"invalid_grant","error_description":"expired"}"#,
                "invalid_grant: expired",
            ),
            (
                r#"{"error":{"code":403,"message":"m","status":"S"}}"#,
                "403: m",
            ),
            (r#"{"token":"secret"}"#, ""),
            (r#""text""#, "text"),
            ("[1]", ""),
            ("", ""),
            ("slow down\r\n\tplease", "slow down please"),
            ("{\"errors\":[{\"code\"", "{'errors':[{'code'"),
        ] {
            assert_eq!(of(body), said, "{body}");
        }
    }

    #[test]
    fn web_pages_and_stores() {
        let page = "<!DOCTYPE html><html><head><TITLE>502 Bad\nGateway</TITLE><body>x";
        assert_eq!(words("text/html", page.as_bytes()), "502 Bad Gateway");
        assert_eq!(words("text/html", b"<p>no title"), "");
        let xml = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Expired</Message></Error>";
        assert_eq!(
            words("application/xml", xml.as_bytes()),
            "AccessDenied: Expired"
        );
    }

    #[test]
    fn nothing_moves_hides_or_ends_the_line() {
        assert_eq!(
            of("a\u{1b}[31mred\u{1b}[0m\u{7}b\u{202e}c\u{200b}d"),
            "a red bcd"
        );
        assert_eq!(of("say \"x\"; then y"), "say 'x'; then y");
        assert_eq!(words("", b"\x00\x01"), "");
        assert_eq!(words("", b"a\xffb"), "a\u{fffd}b");
        let long = of(&"\u{e9}".repeat(5000));
        assert_eq!(long.chars().count(), MAX_WORDS + 3);
    }

    #[test]
    fn urls_keep_no_secret() {
        assert_eq!(
            of("see https://me:secret@a.example/b?X-Signature=s#t, https://b.example?q"),
            "see https://a.example/b https://b.example"
        );
    }
}
