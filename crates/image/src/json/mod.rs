//! JSON from outside, read as Go's `encoding/json` reads it, because its writers and
//! its readers elsewhere expect that.
//!
//! - `null` is the zero value of any type: an empty text, 0, an empty list or map, a structure without fields.
//! - The names of fields match in any case; an exact match is not needed.
//! - Of fields that occur twice the last one counts, and unknown ones are ignored.
//! - Bytes that are not UTF-8, and halves of surrogate pairs, become U+FFFD.
//! - Something after the end of the document is an error.
//!
//! Everything else is an error as in Go: a number in place of a text, a fraction in place of a number, a list in place of a structure.
//! Documents that one of this program's own versions has written are read with `serde_json`, and so are policies and signed statements,
//! which must leave no room for interpretation.
//!
//! A document is read value by value from its text, so that a type that bounds its items bounds the memory as well.

mod fields;
mod read;
mod repair;

use std::cell::Cell;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

#[cfg(test)]
pub(crate) use self::fields::MAX_ITEMS;
pub(crate) use self::fields::{bounded_list, bounded_map, members, words};
use self::read::{JsonText, reason};

/// Why a document cannot be read. The text may quote it.
#[derive(Debug)]
pub(crate) struct JsonError {
    reason: String,
    /// The line of the error, from 1.
    pub(crate) line: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in line {}", self.reason, self.line)
    }
}

/// Reads a document.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let text = String::from_utf8_lossy(bytes);
    let text = repair::surrogates(&text);
    let whole: &RawValue = serde_json::from_str(&text).map_err(|error| JsonError {
        line: error.line(),
        reason: reason(&error),
    })?;
    let failed = Cell::new(None);
    T::deserialize(JsonText::new(whole.get(), &failed)).map_err(|error| {
        // The value is a part of the text.
        let value = failed.get().unwrap_or(whole.get());
        let offset = value.as_ptr().addr() - text.as_ptr().addr();
        let lines = text.as_bytes()[..offset].iter();
        JsonError {
            line: 1 + lines.filter(|byte| **byte == b'\n').count(),
            reason: reason(&error),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase", default)]
    struct Sample {
        some_text: String,
        number: u32,
        switch: bool,
        list: Vec<String>,
        map: BTreeMap<String, String>,
        inner: Inner,
        optional: Option<Inner>,
        many: Vec<Inner>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Inner {
        a: String,
    }

    fn read(text: &str) -> Sample {
        from_slice(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(bytes: &[u8]) -> String {
        let error = from_slice::<Sample>(bytes).expect_err("refused");
        error.to_string()
    }

    #[test]
    fn null_is_the_zero_value_of_every_type() {
        let fields = [
            "someText", "number", "switch", "list", "map", "inner", "optional", "many",
        ];
        for field in fields {
            assert_eq!(
                read(&format!("{{\"{field}\": null }}")),
                Sample::default(),
                "{field}"
            );
        }
        assert_eq!(read("null"), Sample::default());
        let sample =
            read(r#"{"list": ["a", null], "map": {"k": null}, "many": [null, {"a": null}]}"#);
        assert_eq!(sample.list, ["a", ""]);
        assert_eq!(sample.map["k"], "");
        assert_eq!(sample.many.len(), 2);
    }

    #[test]
    fn names_match_in_any_case_and_the_last_one_counts() {
        for name in [
            "someText",
            "sometext",
            "SomeText",
            "SOMETEXT",
            "some\\u0054ext",
        ] {
            assert_eq!(
                read(&format!(r#"{{"{name}": "x"}}"#)).some_text,
                "x",
                "{name}"
            );
        }
        assert_eq!(read(r#"{"someText": "1", "SOMETEXT": "2"}"#).some_text, "2");
        assert_eq!(
            read(r#"{"number": 1, "number": 2, "other": [{}]}"#).number,
            2
        );
        // The keys of a map are no names of fields.
        assert_eq!(
            read(r#"{"map": {"a": "1", "A": "2", "a": "3"}}"#).map.len(),
            2
        );
        assert_eq!(
            read(r#"{"optional": {"A": "x"}, "many": [{"A": "y"}]}"#).many[0].a,
            "y"
        );
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let sample: Sample = from_slice(b"{\"someText\": \"a\xffb\"}").expect("read");
        assert_eq!(sample.some_text, "a\u{fffd}b");
        for (escaped, text) in [
            (r"\ud800", "\u{fffd}"),
            (r"\udc00x", "\u{fffd}x"),
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"\ud800\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\\ud800", r"\ud800"),
            (r"\uD800\n", "\u{fffd}\n"),
        ] {
            let sample = read(&format!(r#"{{"someText": "{escaped}"}}"#));
            assert_eq!(sample.some_text, text, "{escaped}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_and_the_line_is_told() {
        for (text, line) in [
            ("", 1),
            ("{", 1),
            ("{}\n{}", 2),
            ("{} x", 1),
            ("[]", 1),
            ("\"x\"", 1),
            ("\n{\n\"number\": \"1\"}", 3),
            ("{\"number\": 1.0}", 1),
            ("{\"number\": -1}", 1),
            ("{\"someText\": 1}", 1),
            ("{\"switch\": \"true\"}", 1),
            ("{\n\"list\": [\"a\",\n1]}", 3),
            ("{\"list\": \"a\"}", 1),
            ("{\"map\": [\"a\"]}", 1),
            ("{\"inner\": []}", 1),
            ("{\"list\": [\"a\",]}", 1),
            ("{\"someText\": \"\u{1}\"}", 1),
            ("\u{feff}{}", 1),
        ] {
            let error = refused(text.as_bytes());
            assert!(
                error.ends_with(&format!(" in line {line}")),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn deep_nesting_takes_no_stack() {
        let deep = format!(
            "{{\"other\": {}{}}}",
            "[".repeat(1 << 20),
            "]".repeat(1 << 20)
        );
        let _ = from_slice::<Sample>(deep.as_bytes());
    }
}
