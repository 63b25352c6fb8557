//! Pages for endpoints that give programs plain text: readiness, metrics, the log level, and errors. A browser, which asks for HTML, gets the text
//! in a page with the navigation.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::accept::prefers_html;
use super::nav::{self, PageNavigation};
use super::page::{HtmlPage, framed};
use super::verdict::{Verdict, sentence};

/// Largest text that is shown in a page, in bytes; a larger one is sent as it is.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Shows plain text in a page if a browser asks for it.
pub(super) async fn as_pages(
    State(navigation): State<PageNavigation>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = request.method() == Method::GET;
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default();
    let has_format = query.split('&').any(|pair| pair.starts_with("format="));
    let wants_page = is_read && !has_format && prefers_html(request.headers());
    let response = next.run(request).await;
    if !is_text(response.headers()) {
        return response;
    }
    let status = response.status();
    let mut response = if wants_page {
        page_from(navigation, &path, response).await
    } else {
        response
    };
    if status == StatusCode::OK {
        let accept = HeaderValue::from_static("accept");
        response.headers_mut().insert(VARY, accept);
    }
    response
}

/// Returns whether a response is plain text, or has no content at all.
fn is_text(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

async fn page_from(navigation: PageNavigation, path: &str, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let bytes = match to_bytes(body, MAX_TEXT_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) => return Response::from_parts(parts, Body::from(format!("{error}\n"))),
    };
    let text = String::from_utf8_lossy(&bytes);
    page(navigation, path, parts.status, &text).into_response()
}

/// The page of a text.
pub(super) fn page(
    navigation: PageNavigation,
    path: &str,
    status: StatusCode,
    text: &str,
) -> HtmlPage {
    let known = match path {
        "/readyz" => Some(("/readyz?verbose", "Readiness", readiness(status, text))),
        "/livez" => Some(("/livez", "Liveness", liveness(status, text))),
        _ if status != StatusCode::OK => None,
        "/metrics" => Some((path, "Metrics", metrics(text))),
        "/debug/log-level" => Some((path, "Log level", log_level(text))),
        _ => Some((path, "Text", Verdict::empty("Plain text."))),
    };
    let Some((path, title, verdict)) = known else {
        return error_page(navigation, status, text);
    };
    let content = html! {
        // The page is fetched again only on request: a metrics page is large.
        div data-still[path == "/metrics"] {}
        @if path == "/metrics" {
            p { "For programs: " a href="/metrics?format=text" { "the same as plain text" } ", or as OpenMetrics by " code { "Accept" } "." }
        }
        (block(text))
    };
    let bars = nav::bars(navigation, path);
    framed(&bars, title, &html! { (title) }, &verdict, &content).status(status)
}

/// The page of an error.
fn error_page(navigation: PageNavigation, status: StatusCode, text: &str) -> HtmlPage {
    let (first, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let title = status.canonical_reason().unwrap_or("Error");
    let first = sentence(if first.is_empty() { title } else { first });
    let verdict = if status.is_server_error() {
        Verdict::bad(first)
    } else {
        Verdict::warning(first)
    };
    let content = html! {
        div data-still {}
        @if !rest.is_empty() { (block(rest)) }
        p { "HTTP status " (status.as_u16()) ". " a href="/" { "To the live page" } "." }
    };
    let bars = nav::bars(navigation, "");
    framed(&bars, title, &html! { (title) }, &verdict, &content).status(status)
}

/// The response to a request that may not be answered with more than a sentence: a page without navigation and version.
pub(super) fn refusal(headers: &HeaderMap, status: StatusCode, text: &'static str) -> Response {
    if !prefers_html(headers) {
        return (status, text).into_response();
    }
    let title = status.canonical_reason().unwrap_or("Error");
    let verdict = Verdict::warning(sentence(text.trim()));
    framed(
        &html! {},
        title,
        &html! { (title) },
        &verdict,
        &html! { div data-still {} },
    )
    .without_version()
    .status(status)
    .into_response()
}

/// The lines of a text. Control characters, such as those between lines, do not survive in a page.
fn block(text: &str) -> Markup {
    html! { pre.text tabindex="0" { @for line in text.lines() { (line) br; } } }
}

fn readiness(status: StatusCode, text: &str) -> Verdict {
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-] "))
        .collect();
    match (status, &failed[..]) {
        (StatusCode::OK, _) => Verdict::good("Ready: every backend answers."),
        (_, []) => Verdict::bad("Not ready: the request path makes no progress."),
        (_, failed) => Verdict::bad(format!("Not ready: {}.", failed.join("; "))),
    }
}

fn liveness(status: StatusCode, text: &str) -> Verdict {
    match status {
        StatusCode::OK => Verdict::good("Alive: the request path makes progress."),
        _ => Verdict::bad(text.trim()),
    }
}

fn metrics(text: &str) -> Verdict {
    let lines = text.lines();
    let series = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let families = text.lines().filter(|line| line.starts_with("# TYPE "));
    let (series, families) = (series.count(), families.count());
    let metrics = if families == 1 {
        "metric is"
    } else {
        "metrics are"
    };
    Verdict::good(format!(
        "{families} {metrics} exported, with {series} series."
    ))
}

fn log_level(text: &str) -> Verdict {
    Verdict::good(html! {
        "Log lines are written by the filter " code { (text.trim()) } "."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html_of(path: &str, status: StatusCode, text: &str) -> String {
        page(PageNavigation::Full, path, status, text).into_html()
    }

    #[test]
    fn texts_are_shown_with_the_navigation_and_a_verdict() {
        let table = [
            ("/readyz", "ok\n", "Ready: every backend answers."),
            ("/livez", "ok\n", "Alive:"),
            (
                "/metrics",
                "# TYPE a gauge\na{b=\"<\"} 1\n",
                "1 metric is exported, with 1 series",
            ),
            ("/debug/log-level", "info", "<code>info</code>"),
        ];
        for (path, text, verdict) in table {
            let html = html_of(path, StatusCode::OK, text);
            assert!(
                html.contains("class=\"verdict good\"") && html.contains(verdict),
                "{html}"
            );
            assert!(
                html.contains("aria-label=\"Pages\"") && html.contains("<pre"),
                "{html}"
            );
        }
        let html = html_of("/metrics", StatusCode::OK, "a{b=\"<c>\"} 1\n");
        assert!(html.contains("&lt;c&gt;"), "{html}");
        let html = html_of("/readyz", StatusCode::OK, "[+] a\nok\n");
        assert!(html.contains("[+] a<br>ok<br>"), "{html}");
    }

    #[test]
    fn an_error_is_told_in_its_first_line() {
        let down = "[-] backend main: down: refused\nnot ready\n";
        let html = html_of("/readyz", StatusCode::SERVICE_UNAVAILABLE, down);
        assert!(
            html.contains("Not ready: backend main: down: refused."),
            "{html}"
        );
        let html = html_of("/nowhere", StatusCode::NOT_FOUND, "page <not> found\n");
        assert!(
            html.contains("class=\"verdict warn\"") && html.contains("Page &lt;not&gt; found.")
        );
        let html = html_of("/debug/faults", StatusCode::METHOD_NOT_ALLOWED, "");
        assert!(html.contains("Method Not Allowed"), "{html}");
    }

    #[test]
    fn a_refused_host_learns_neither_pages_nor_version() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("text/html"));
        let response = refusal(&headers, StatusCode::MISDIRECTED_REQUEST, "no\n");
        let body = to_bytes(response.into_body(), 1 << 20);
        let body = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(body)
            .expect("a body");
        let html = String::from_utf8_lossy(&body);
        assert!(
            !html.contains("data-version") && !html.contains("<nav"),
            "{html}"
        );
    }
}
