//! Values of settings on pages and in answers.

use std::borrow::Cow;

/// A value without user and password in its URLs. No setting accepts them today; a future one is covered.
pub fn without_user(value: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(value);
    let mut from = 0;
    while let Some(scheme) = shown[from..].find("://") {
        let start = from + scheme + 3;
        let rest = &shown[start..];
        let end = rest.find(|c: char| "/?#\"',".contains(c) || c.is_whitespace());
        let authority = &rest[..end.unwrap_or(rest.len())];
        if let Some(at) = authority.rfind('@') {
            shown.to_mut().replace_range(start..start + at, "...");
        }
        from = start;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_of_urls_are_not_shown() {
        for (value, shown) in [
            (
                "\"http://me:hunter2@host:4317\"",
                "\"http://...@host:4317\"",
            ),
            ("http://a@b@host/p@th?q=x@y", "http://...@host/p@th?q=x@y"),
            (
                "[\"x://u:p@h\", \"y://q@i\"]",
                "[\"x://...@h\", \"y://...@i\"]",
            ),
            ("\"unix:///run/a@b.sock\"", "\"unix:///run/a@b.sock\""),
            ("http://é:ß@host", "http://...@host"),
            ("://", "://"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_user(value), shown);
        }
    }
}
