//! The frame of every page: HTML that works offline and without scripts, in light and dark, and headers that let nothing
//! else in.

use std::fmt::{self, Display, Write as _};
use std::sync::LazyLock;

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::nav;
use crate::cri::visible::visible;

/// Colours and layout.
pub(super) const STYLE: &str = include_str!("style.css");

/// Textures, so that phases differ by more than colour. Referred to in `style.css`.
const PATTERNS: &str = include_str!("patterns.svg");

/// Fetches the page again and swaps its `<main>`. All of it is extra.
pub(super) const SCRIPT: &str = include_str!("refresh.js");

/// An icon, so that no browser asks for one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Crect width='16' height='16' rx='3' fill='%233867b0'/%3E\
    %3Cpath d='M3 5h6M6 8h7M5 11h4' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

/// A whole page.
#[derive(Debug)]
pub struct Page {
    status: StatusCode,
    html: String,
}

/// A whole page. `body` is HTML.
pub fn page(title: &str, body: &str) -> Page {
    page_at("", title, body)
}

/// A whole page that is marked in the navigation by its path. `body` is HTML.
pub fn page_at(path: &str, title: &str, body: &str) -> Page {
    framed(&nav::html(path), title, &heading(title), body)
}

/// A page without navigation, for an endpoint that has no other pages.
pub(super) fn lone(title: &str, body: &str) -> Page {
    framed(&nav::lone(), title, &heading(title), body)
}

fn heading(title: &str) -> String {
    format!("<h1>{}</h1>", Escaped(title))
}

/// A page with a heading of its own kind.
pub(super) fn framed(nav: &str, title: &str, heading: &str, body: &str) -> Page {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\" data-version=\"{version}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"{ICON}\">\
         <title>{title} - criscope</title><style>{STYLE}</style></head>\n<body>\n{nav}\n{PATTERNS}\n\
         <main id=\"main\" tabindex=\"-1\">\n{heading}\n{body}\n</main>\n<script>{SCRIPT}</script>\n</body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = Escaped(title),
    );
    Page {
        status: StatusCode::OK,
        html,
    }
}

impl Page {
    /// The same with another HTTP status.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The HTML.
    pub fn into_html(self) -> String {
        self.html
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = (self.status, Html(self.html)).into_response();
        put(
            response.headers_mut(),
            header::CONTENT_SECURITY_POLICY,
            &POLICY,
        );
        response
    }
}

/// Our one style sheet and our one script, known by their hashes; nothing from elsewhere, no frame around us.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// Headers for all answers, whatever their kind. A page has a policy already.
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
    // All values are ours and in ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Text fit for HTML, attributes included; nothing in it is invisible or turns the direction of the line.
#[derive(Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in visible(&self.0.to_string()).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_stays_text() {
        let escaped = Escaped("<a href=\"x\">&'").to_string();
        assert_eq!(escaped, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(Escaped("a\u{202e}b\u{1b}c").to_string(), "a\u{fffd}b c");
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
