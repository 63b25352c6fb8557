//! The bars at the top of every page.

use maud::{Markup, html};

/// The pages that an endpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageNavigation {
    /// All of them.
    Full,
    /// None below `/debug`.
    Lone,
}

/// The bars of an endpoint, with the page at `path` marked.
pub(super) fn bars(navigation: PageNavigation, path: &str) -> Markup {
    match navigation {
        PageNavigation::Full => html(path),
        PageNavigation::Lone => bar(&LONE_PAGES, path),
    }
}

/// Path and label of the pages that answer most questions.
const PAGES: [(&str, &str); 6] = [
    ("/", "Live"),
    ("/debug/pods", "Pods"),
    ("/debug/calls", "Calls"),
    ("/debug/images/pulls", "Images"),
    ("/debug/rpcz", "Methods"),
    (DEBUG_PATH, "Debug"),
];

/// The first page of the group "Debug".
const DEBUG_PATH: &str = "/debug";

/// Path, label and content of the pages of the group "Debug".
const DEBUG_PAGES: [(&str, &str, &str); 7] = [
    (
        "/debug/flight",
        "Recorder",
        "the last calls, samples of calls by latency, and failed calls; as JSON or a trace file",
    ),
    (
        "/debug/backends",
        "Backends",
        "the runtimes behind criscope, their conditions, and which calls go where",
    ),
    (
        "/debug/config",
        "Settings",
        "the configuration in effect, and which changes need a restart",
    ),
    (
        "/readyz?verbose",
        "Readiness",
        "whether criscope and each backend are ready, check by check",
    ),
    (
        "/debug/faults",
        "Faults",
        "the faults that are injected on purpose",
    ),
    ("/metrics", "Metrics", "the metrics that Prometheus reads"),
    (
        "/debug/log-level",
        "Log level",
        "the filter of log lines in effect",
    ),
];

/// The bars, with the page at `path` marked. A page of the group "Debug" also has the group's bar.
pub(super) fn html(path: &str) -> Markup {
    let in_group = path == DEBUG_PATH || DEBUG_PAGES.iter().any(|(of, ..)| *of == path);
    html! {
        (bar(&PAGES, if in_group { DEBUG_PATH } else { path }))
        @if in_group {
            nav.group aria-label="Debug pages" {
                ul { @for (of, word, _) in DEBUG_PAGES { (entry(of, word, of == path)) } }
            }
        }
    }
}

/// Path and label of the pages of an endpoint without pages below `/debug`.
const LONE_PAGES: [(&str, &str); 3] = [
    ("/", "Live"),
    ("/readyz?verbose", "Readiness"),
    ("/metrics", "Metrics"),
];

/// The list of the pages of the group "Debug".
pub(super) fn index() -> Markup {
    html! {
        dl.index {
            @for (path, word, content) in DEBUG_PAGES { dt { a href=(path) { (word) } } dd { (content) } }
        }
    }
}

fn bar(pages: &[(&str, &str)], here: &str) -> Markup {
    html! {
        a.skip href="#main" { "Skip to content" }
        header.top {
            a.brand href="/" { "criscope" }
            nav aria-label="Pages" {
                ul { @for (path, word) in pages { (entry(path, word, *path == here)) } }
            }
            div #refresh {}
        }
    }
}

fn entry(path: &str, word: &str, is_here: bool) -> Markup {
    html! { li { a href=(path) aria-current=[is_here.then_some("page")] { (word) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_marked() {
        let one = html("/debug/pods").into_string();
        assert_eq!(one.matches("aria-current").count(), 1);
        assert!(one.contains("href=\"/debug/pods\" aria-current=\"page\">Pods<"));
        assert!(!one.contains("Recorder"), "{one}");
        let group = html("/debug/backends").into_string();
        assert!(
            group.contains("href=\"/debug\" aria-current=\"page\">Debug<"),
            "{group}"
        );
        assert!(group.contains("href=\"/debug/backends\" aria-current=\"page\">Backends<"));
        let lone = bars(PageNavigation::Lone, "/metrics").into_string();
        assert!(!lone.contains("/debug"), "{lone}");
        assert!(lone.contains("href=\"/metrics\" aria-current=\"page\""));
    }
}
