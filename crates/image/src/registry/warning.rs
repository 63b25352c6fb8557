//! Parses `Warning` (RFC 7234, 5.5, and OCI distribution-spec, "Warnings"): what a registry wants people to know.

use reqwest::header::{HeaderMap, WARNING};

use super::words::{clean, quoted};

/// The code of warnings for people.
const FOR_PEOPLE: &str = "299";
/// Most warnings of one response.
const MAX_WARNINGS: usize = 4;
/// Most characters of one.
const MAX_WARNING: usize = 300;

/// The warnings of a response for people, each once.
pub(super) fn warnings(headers: &HeaderMap) -> Vec<String> {
    let mut found = Vec::new();
    for value in headers.get_all(WARNING) {
        let text = String::from_utf8_lossy(value.as_bytes());
        for warning in parse(&text) {
            let warning = clean(&warning, MAX_WARNING);
            if !warning.is_empty() && !found.contains(&warning) && found.len() < MAX_WARNINGS {
                found.push(warning);
            }
        }
    }
    found
}

/// The texts of a list of warnings with the code for people: `299 AGENT "TEXT" "DATE", ...`. What cannot be parsed ends the list.
fn parse(header: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let Some((code, after)) = rest.split_once([' ', '\t']) else {
            return found;
        };
        let Some((_agent, after)) = after.trim_start().split_once([' ', '\t']) else {
            return found;
        };
        let Some((text, after)) = quoted(after.trim_start()) else {
            return found;
        };
        if code == FOR_PEOPLE {
            found.push(text);
        }
        // The date is optional.
        let after = after.trim_start();
        rest = quoted(after).map_or(after, |(_date, after)| after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("WARNING", value.parse().expect("a header"));
        }
        warnings(&headers)
    }

    #[test]
    fn warnings_for_people() {
        assert_eq!(of(&["299 - \"deprecated\""]), ["deprecated"]);
        let two = r#"299 - "one, \"two\" \\ 3" "Wed, 21 Oct 2015 07:28:00 GMT" , 299 r.example:5000 "three""#;
        assert_eq!(of(&[two]), [r"one, 'two' \ 3", "three"]);
        assert_eq!(
            of(&["299 - \"a\"", "299 - \"a\"", "299 - \"b\""]),
            ["a", "b"]
        );
        assert_eq!(of(&["199 - \"not\", 299 - \"this\""]), ["this"]);
        let cafe = of(&["299 - \"caf\u{e9}\""]);
        assert_eq!(cafe, ["caf\u{e9}"]);
    }

    #[test]
    fn what_is_no_warning_is_ignored_and_the_number_is_bounded() {
        for value in [
            "",
            "299",
            "299 -",
            "299 - text",
            "299 - \"open",
            "- \"x\"",
            "299 - \"\"",
            ",,,",
        ] {
            assert_eq!(of(&[value]), Vec::<String>::new(), "{value}");
        }
        let many: Vec<_> = (0..100).map(|n| format!("299 - \"{n}\"")).collect();
        assert_eq!(of(&[&many.join(", ")]).len(), MAX_WARNINGS);
        let long = format!("299 - \"{}\"", "x".repeat(10_000));
        assert!(of(&[&long])[0].len() <= MAX_WARNING + 3);
    }
}
