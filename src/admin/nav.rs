//! The bar at the top of every page.

use maud::{Markup, html};

/// Path and label of each page.
const PAGES: [(&str, &str); 13] = [
    ("/", "Live"),
    ("/debug/pods", "Pods"),
    ("/debug/calls", "Calls"),
    ("/debug/images/pulls", "Images"),
    ("/debug/rpcz", "Methods"),
    ("/debug/tracez", "Samples"),
    ("/debug/flight", "Recorder"),
    ("/debug/backends", "Backends"),
    ("/debug/routes", "Routes"),
    ("/debug/config", "Settings"),
    ("/readyz?verbose", "Readiness"),
    ("/metrics", "Metrics"),
    ("/debug/log-level", "Log level"),
];

/// The bar, with the page at `path` marked.
pub(super) fn html(path: &str) -> Markup {
    bar(&PAGES, path)
}

/// The bar of an endpoint without pages below `/debug`.
pub(super) fn lone() -> Markup {
    let mut pages = PAGES.to_vec();
    pages.retain(|(path, _)| !path.starts_with("/debug"));
    bar(&pages, "/")
}

fn bar(pages: &[(&str, &str)], here: &str) -> Markup {
    html! {
        a.skip href="#main" { "Skip to content" }
        header.top {
            a.brand href="/" { "criscope" }
            nav aria-label="Pages" {
                ul {
                    @for (path, word) in pages {
                        li { a href=(path) aria-current=[(*path == here).then_some("page")] { (word) } }
                    }
                }
            }
            div #refresh {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_marked() {
        let html = html("/debug/pods").into_string();
        assert_eq!(html.matches("aria-current").count(), 1);
        assert!(html.contains("href=\"/debug/pods\" aria-current=\"page\">Pods<"));
        assert!(!lone().into_string().contains("/debug"));
    }
}
