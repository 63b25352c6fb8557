//! The frame of every page: HTML that works offline and without scripts, in light and dark, and headers that allow no
//! other sources.

use std::sync::LazyLock;

use axum::extract::{Query, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::PageSources;
use super::nav::{self, PageNavigation};
use super::verdict::Verdict;
use crate::cri::visible::visible;

/// Colours and layout.
pub(super) const STYLE: &str = include_str!("style.css");

/// Textures, so that phases differ by more than colour; `style.css` refers to them.
const PATTERNS: &str = include_str!("patterns.svg");

/// Fetches the page again and swaps its `<main>`. The pages work without it.
pub(super) const SCRIPT: &str = include_str!("refresh.js");

/// The page reloads itself when another version answers.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An icon, so that browsers do not request `/favicon.ico`.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Crect width='16' height='16' rx='3' fill='%233867b0'/%3E\
    %3Cpath d='M3 5h6M6 8h7M5 11h4' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

/// A whole page.
#[derive(Debug)]
pub struct HtmlPage {
    status: StatusCode,
    html: String,
}

/// A page, marked in the navigation by its path. It opens with its verdict.
pub(super) fn page_at(path: &str, title: &str, verdict: &Verdict, body: &Markup) -> HtmlPage {
    framed(&nav::html(path), title, &html! { (title) }, verdict, body)
}

/// `?format=json`
#[derive(Debug, Deserialize)]
pub struct FormatQuery {
    format: Option<String>,
}

impl FormatQuery {
    /// Returns whether JSON is requested.
    pub fn is_json(&self) -> bool {
        self.format.as_deref() == Some("json")
    }
}

/// Adds a page that shows a report, which is JSON with `?format=json`.
pub(super) fn add_report<T: Serialize + 'static>(
    app: Router<PageSources>,
    (path, title): (&'static str, &'static str),
    read: fn(&PageSources) -> T,
    html: fn(&T) -> (Verdict, Markup),
) -> Router<PageSources> {
    let page = async move |State(sources): State<PageSources>,
                           Query(format): Query<FormatQuery>| {
        let report = read(&sources);
        if format.is_json() {
            Json(report).into_response()
        } else {
            let (verdict, body) = html(&report);
            page_at(path, title, &verdict, &body).into_response()
        }
    };
    app.route(path, get(page))
}

/// `/debug`: the pages of that group.
pub(super) async fn debug(State(sources): State<PageSources>) -> HtmlPage {
    let pods = sources.stories.pods(&sources.in_flight.calls());
    let verdict = Verdict::over_node(&pods.verdict);
    page_at("/debug", "Debug", &verdict, &nav::index())
}

/// The front page of an endpoint without the pages below `/debug`.
pub(super) fn lone(title: &str, verdict: &Verdict, body: &Markup) -> HtmlPage {
    let bars = nav::bars(PageNavigation::Lone, "/");
    framed(&bars, title, &html! { (title) }, verdict, body)
}

/// A page with a heading other than its title.
pub(super) fn framed(
    nav: &Markup,
    title: &str,
    heading: &Markup,
    verdict: &Verdict,
    body: &Markup,
) -> HtmlPage {
    let content = html! { h1 { (heading) } (verdict) (body) };
    let html = html! {
        (DOCTYPE)
        html lang="en" data-version=(VERSION) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href=(ICON);
                title { (visible(title)) " - criscope" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (nav)
                (PreEscaped(PATTERNS))
                // maud escapes names and messages; this replaces their control and invisible characters.
                main #main tabindex="-1" { (PreEscaped(visible(&content.0))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
        "\n"
    };
    HtmlPage {
        status: StatusCode::OK,
        html: html.into_string(),
    }
}

impl HtmlPage {
    /// Sets the HTTP status.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Leaves out the version.
    pub(super) fn without_version(mut self) -> Self {
        let attribute = format!(" data-version=\"{VERSION}\"");
        self.html = self.html.replacen(&attribute, "", 1);
        self
    }

    /// The HTML.
    pub fn into_html(self) -> String {
        self.html
    }
}

impl IntoResponse for HtmlPage {
    fn into_response(self) -> Response {
        let mut response = (self.status, Html(self.html)).into_response();
        put(
            response.headers_mut(),
            header::CONTENT_SECURITY_POLICY,
            &CONTENT_SECURITY_POLICY,
        );
        response
    }
}

/// Allows the one style sheet and the one script by their hashes, no other sources and no framing.
static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let [style, script] = [STYLE, SCRIPT].map(|text| STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
});

/// Adds the headers that all responses have. A page has a policy already.
pub async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    put(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(headers, header::REFERRER_POLICY, "no-referrer");
    put(headers, header::CACHE_CONTROL, "no-store");
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        put(
            headers,
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        );
    }
    response
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // All values are constants in ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_stays_text() {
        let name = "<a href=\"x\">&'";
        let shown = page_at(
            "",
            name,
            &Verdict::good(""),
            &html! { p title=(name) { (name) } },
        )
        .into_html();
        let escaped = "&lt;a href=&quot;x&quot;&gt;&amp;'";
        assert_eq!(shown.matches(escaped).count(), 4, "{shown}");
        assert!(!shown.contains(name), "{shown}");
        let shown = page_at(
            "",
            "t",
            &Verdict::good(""),
            &html! { p { "a\u{202e}b\u{1b}c" } },
        )
        .into_html();
        assert!(shown.contains("<p>a\u{fffd}b c</p>"), "{shown}");
        let shown = page_at("", "a\u{202e}b\u{1b}c", &Verdict::good(""), &html! {}).into_html();
        assert!(
            shown.contains("<title>a\u{fffd}b c - criscope</title>"),
            "{shown}"
        );
    }

    #[test]
    fn style_and_script_end_where_they_should() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--"));
            // The browser hashes what it parsed, in which there is no carriage return.
            assert!(!text.contains('\r') && !text.contains('\0'));
        }
        for elsewhere in ["http:", "https:", "//cdn", "@import"] {
            assert!(!STYLE.contains(elsewhere) && !SCRIPT.contains(elsewhere));
        }
    }
}
