//! A flag in raw text: a line of a unit, an assignment of an environment file, a file of arguments.

use std::ops::Range;

/// The last value of `--name value` or `--name=value`, which is the one that counts.
pub(crate) fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.get(span(text, name)?)
}

/// The text with the last value of a flag replaced; `None` if it is not there.
pub(crate) fn set(text: &str, name: &str, value: &str) -> Option<String> {
    let span = span(text, name)?;
    let mut text = text.to_owned();
    text.replace_range(span, value);
    Some(text)
}

/// Replaces the flag within the last assignment to a variable of an environment file.
pub(crate) fn set_in_variable(
    text: &str,
    variable: &str,
    name: &str,
    value: &str,
) -> Option<String> {
    let (mut at, mut found, mut inside) = (0, None, false);
    for line in text.split_inclusive('\n') {
        let assigned = line.trim_start().split_once('=');
        if inside || assigned.is_some_and(|(name, _)| name.trim_end() == variable) {
            let start = match (inside, &found) {
                (true, Some((start, _))) => *start,
                _ => at,
            };
            found = Some((start, at + line.len()));
            inside = line.trim_end().ends_with('\\');
        }
        at += line.len();
    }
    let (start, end) = found?;
    let edited = set(&text[start..end], name, value)?;
    Some(format!("{}{edited}{}", &text[..start], &text[end..]))
}

fn span(text: &str, name: &str) -> Option<Range<usize>> {
    let mut found = None;
    for (at, _) in text.match_indices(name) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| !(c.is_whitespace() || matches!(c, '"' | '\'' | '='))) {
            continue;
        }
        // A comment of a file of arguments.
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let rest = &text[at + name.len()..];
        let value = match rest.strip_prefix('=') {
            Some(value) => value,
            // The value is the next word; the line may continue.
            None if rest.starts_with([' ', '\t', '\\']) => {
                rest.trim_start_matches([' ', '\t', '\\', '\n'])
            }
            None => continue,
        };
        let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
        let end = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
        let length = end.unwrap_or(value.len());
        let start = text.len() - value.len();
        found = Some(start..start + length);
    }
    found
}

/// The last value of a flag among words.
pub(crate) fn last_in_words<'a>(words: &'a [String], name: &str) -> Option<(usize, &'a str)> {
    let mut found = None;
    for (index, word) in words.iter().enumerate() {
        match word.strip_prefix(name) {
            Some("") => {
                let next = words.get(index + 1);
                found = next.map(|value| (index + 1, value.as_str())).or(found);
            }
            Some(rest) => {
                let value = rest.strip_prefix('=');
                found = value.map(|value| (index, value)).or(found);
            }
            None => {}
        }
    }
    found.filter(|(_, value)| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "--container-runtime-endpoint";

    #[test]
    fn the_last_value_counts_and_is_replaced() {
        for (text, expected) in [
            (
                "A=\"--container-runtime-endpoint=unix:///a --b=c\"",
                "A=\"--container-runtime-endpoint=N --b=c\"",
            ),
            (
                "--x\n--container-runtime-endpoint=${S}/a\n--containerd=${S}/a\n",
                "--x\n--container-runtime-endpoint=N\n--containerd=${S}/a\n",
            ),
            (
                "k --container-runtime-endpoint \\\n  unix:///a \\\n --b",
                "k --container-runtime-endpoint \\\n  N \\\n --b",
            ),
            (
                "k --container-runtime-endpoint=\"unix:///a\"",
                "k --container-runtime-endpoint=\"N\"",
            ),
            (
                "A=--container-runtime-endpoint=a",
                "A=--container-runtime-endpoint=N",
            ),
            (
                "--container-runtime-endpoint=a --container-runtime-endpoint=b",
                "--container-runtime-endpoint=a --container-runtime-endpoint=N",
            ),
            (
                "# --container-runtime-endpoint=a\n--container-runtime-endpoint=b",
                "# --container-runtime-endpoint=a\n--container-runtime-endpoint=N",
            ),
        ] {
            assert_eq!(set(text, FLAG, "N").as_deref(), Some(expected));
            assert_eq!(value(expected, FLAG), Some("N"));
        }
        for text in [
            "",
            "--container-runtime-endpoints=a",
            "x--container-runtime-endpoint=a",
            "# --container-runtime-endpoint=a",
        ] {
            assert_eq!(set(text, FLAG, "N"), None, "{text}");
        }
    }

    #[test]
    fn in_an_environment_file_the_variable_counts() {
        let text = "A=\"--e=1 \\\n --f=1\"\nB='--e=2'\nC=\n";
        let set = |variable| set_in_variable(text, variable, "--e", "n");
        assert_eq!(
            set("A").as_deref(),
            Some("A=\"--e=n \\\n --f=1\"\nB='--e=2'\nC=\n")
        );
        assert_eq!(
            set_in_variable(text, "A", "--f", "n").as_deref(),
            Some("A=\"--e=1 \\\n --f=n\"\nB='--e=2'\nC=\n")
        );
        assert_eq!(
            set("B").as_deref(),
            Some("A=\"--e=1 \\\n --f=1\"\nB='--e=n'\nC=\n")
        );
        assert_eq!(set("C"), None);
    }

    #[test]
    fn words_may_be_two() {
        let words = ["k", "--a=1", "--a", "2", "--ab=3"].map(str::to_owned);
        assert_eq!(last_in_words(&words, "--a"), Some((3, "2")));
        assert_eq!(last_in_words(&words, "--b"), None);
    }
}
