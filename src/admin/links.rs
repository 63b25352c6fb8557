//! Links to pages of pods and traces. Names come from callers: they are percent-encoded in the path.

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const PATH_SEGMENT_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The path of a pod's page.
pub(super) fn pod_path(namespace: &str, name: &str) -> String {
    format!(
        "/debug/pods/{}/{}",
        utf8_percent_encode(namespace, PATH_SEGMENT_ESCAPES),
        utf8_percent_encode(name, PATH_SEGMENT_ESCAPES)
    )
}

/// A link to a pod's page.
pub(super) fn pod(namespace: &str, name: &str) -> Markup {
    html! { a href=(pod_path(namespace, name)) { span.muted { (namespace) "/" } (name) } }
}

/// A link to a trace; `url` is `admin.trace_url`.
pub(super) fn trace(url: &str, id: &str) -> Markup {
    let id_in_url = utf8_percent_encode(id, PATH_SEGMENT_ESCAPES).to_string();
    html! { small { a href=(url.replace("{trace_id}", &id_in_url)) rel="noreferrer" { code { (id) } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place() {
        assert_eq!(pod_path("a/b", "?x#y%"), "/debug/pods/a%2Fb/%3Fx%23y%25");
        let link = pod("n", "\"><script>").into_string();
        assert!(!link.contains("<script") && link.contains("%22%3E%3Cscript%3E"));
    }
}
