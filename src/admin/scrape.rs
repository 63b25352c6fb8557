//! `/metrics`, in the format that `Accept` prefers.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::PageSources;
use super::accept::{MediaType, NAMED, accepted, quality};
use crate::telemetry::openmetrics;
use crate::telemetry::registry::Registry;

/// A format of the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpositionFormat {
    /// Prometheus text format 0.0.4, the default.
    Text,
    /// OpenMetrics 1.0.0, the only one with exemplars.
    OpenMetrics,
}

impl ExpositionFormat {
    const fn media(self) -> MediaType {
        match self {
            Self::Text => MediaType::new("text", "plain").with_version("0.0.4"),
            Self::OpenMetrics => {
                MediaType::new("application", "openmetrics-text").with_version("1.0.0")
            }
        }
    }

    /// Content negotiation of RFC 9110, section 12.5.1. OpenMetrics needs a higher weight than the text format, or the same
    /// weight and to be named. A client that accepts neither gets the text format.
    fn accepted(headers: &HeaderMap) -> Self {
        let accepted = accepted(headers);
        let (text, _) = quality(&accepted, Self::Text.media());
        let (open, exactness) = quality(&accepted, Self::OpenMetrics.media());
        if open > text || (open == text && open > 0 && exactness >= NAMED) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// `/metrics`
pub async fn metrics(State(sources): State<PageSources>, headers: HeaderMap) -> Response {
    let (content_type, text) = match ExpositionFormat::accepted(&headers) {
        ExpositionFormat::Text => (Registry::CONTENT_TYPE, sources.registry.encode()),
        ExpositionFormat::OpenMetrics => {
            let text = sources.registry.encode_openmetrics();
            (openmetrics::CONTENT_TYPE, Ok(text.into_bytes()))
        }
    };
    let head = [
        (header::CONTENT_TYPE, content_type),
        (header::VARY, "accept"),
    ];
    match text {
        Ok(text) => (head, text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_gets_what_it_likes_best() {
        use ExpositionFormat::{OpenMetrics, Text};
        let table = [
            ("", Text),
            ("*/*", Text),
            ("text/plain", Text),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Text,
            ),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=1.0.0", OpenMetrics),
            (
                "application/openmetrics-text; version=\"1.0.0\"; charset=utf-8",
                OpenMetrics,
            ),
            // A version that is not spoken here.
            ("application/openmetrics-text; version=0.0.1", Text),
            (
                "application/openmetrics-text; version=0.0.1, */*;q=0.1",
                Text,
            ),
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            // Prometheus 3.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            // Prometheus with `scrape_protocols: [PrometheusText0.0.4]`.
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.4", Text),
            // The weight decides, not the order.
            ("application/openmetrics-text;q=0.4, text/plain;q=0.5", Text),
            (
                "text/plain;q=0.4, application/openmetrics-text;q=0.5",
                OpenMetrics,
            ),
            ("text/plain, application/openmetrics-text", OpenMetrics),
            ("application/*, text/*", Text),
            ("application/*, text/*;q=0.9", OpenMetrics),
            // The more exact range holds.
            ("application/openmetrics-text;q=0, */*", Text),
            ("*/*;q=0.9, text/plain;q=0.1", OpenMetrics),
            ("application/openmetrics-text;q=0", Text),
            // Nonsense says nothing.
            ("application/openmetrics-text;q=2", Text),
            ("application/openmetrics-text;q=x", Text),
            ("openmetrics", Text),
            (",;,/;q", Text),
        ];
        for (accept, format) in table {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.append(header::ACCEPT, accept.parse().expect("a value"));
            }
            assert_eq!(ExpositionFormat::accepted(&headers), format, "{accept}");
        }
        let mut headers = HeaderMap::new();
        for accept in ["text/plain;q=0.1", "application/openmetrics-text"] {
            headers.append(header::ACCEPT, accept.parse().expect("a value"));
        }
        assert_eq!(
            ExpositionFormat::accepted(&headers),
            OpenMetrics,
            "two headers are one list"
        );
    }
}
