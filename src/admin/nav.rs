//! The bar at the top of every page.

use std::fmt::Write as _;

/// Where one can go: path and word.
const PLACES: [(&str, &str); 13] = [
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

/// The bar, with the place at `path` marked.
pub(super) fn html(path: &str) -> String {
    bar(&PLACES, path)
}

/// The bar of an endpoint with nothing below `/debug`.
pub(super) fn lone() -> String {
    let places: Vec<_> = PLACES
        .into_iter()
        .filter(|(path, _)| !path.starts_with("/debug"))
        .collect();
    bar(&places, "/")
}

fn bar(places: &[(&str, &str)], here: &str) -> String {
    let mut html = String::from(
        "<a class=\"skip\" href=\"#main\">Skip to content</a>\n<header class=\"top\"><a class=\"brand\" href=\"/\">criscope</a>\
         <nav aria-label=\"Pages\"><ul>",
    );
    for (path, word) in places {
        let current = if *path == here {
            " aria-current=\"page\""
        } else {
            ""
        };
        // Writing to a String does not fail.
        let _ = write!(html, "<li><a href=\"{path}\"{current}>{word}</a></li>");
    }
    html.push_str("</ul></nav><div id=\"refresh\"></div></header>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_marked() {
        let html = html("/debug/pods");
        assert_eq!(html.matches("aria-current").count(), 1);
        assert!(html.contains("href=\"/debug/pods\" aria-current=\"page\">Pods<"));
        assert!(!lone().contains("/debug"));
    }
}
