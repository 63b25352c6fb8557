//! Links to pages of pods. Names come from callers, so each is escaped for the place where it stands.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::page::Escaped;

/// What may stand in a path segment as it is (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The path of a pod's page.
pub(super) fn pod_path(namespace: &str, name: &str) -> String {
    format!(
        "/debug/pods/{}/{}",
        utf8_percent_encode(namespace, SEGMENT),
        utf8_percent_encode(name, SEGMENT)
    )
}

/// A link to a pod's page.
pub(super) fn pod(namespace: &str, name: &str) -> String {
    format!(
        "<a href=\"{}\"><span class=\"muted\">{}/</span>{}</a>",
        pod_path(namespace, name),
        Escaped(namespace),
        Escaped(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place() {
        assert_eq!(pod_path("a/b", "?x#y%"), "/debug/pods/a%2Fb/%3Fx%23y%25");
        let link = pod("n", "\"><script>");
        assert!(!link.contains("<script") && link.contains("%22%3E%3Cscript%3E"));
    }
}
