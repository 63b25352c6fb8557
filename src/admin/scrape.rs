//! `/metrics`, in the format that `Accept` prefers.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::PageSources;
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
    /// Type, subtype and version.
    const fn media(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Text => ("text", "plain", "0.0.4"),
            Self::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }

    /// Content negotiation of RFC 9110, section 12.5.1. OpenMetrics needs a higher weight than the text format, or the same
    /// weight and to be named. A client that accepts neither gets the text format.
    fn accepted(headers: &HeaderMap) -> Self {
        let accepted: Vec<_> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .filter_map(AcceptedMediaRange::parse)
            .collect();
        let (text, _) = quality(&accepted, Self::Text);
        let (open, exactness) = quality(&accepted, Self::OpenMetrics);
        let named = exactness > 1;
        if open > text || (open == text && open > 0 && named) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// One entry of `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AcceptedMediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
    quality: u16,
}

impl<'a> AcceptedMediaRange<'a> {
    /// Parses `TYPE/SUBTYPE;PARAMETER=VALUE;q=WEIGHT`; `None` for anything else.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Self {
            kind,
            subtype,
            version: None,
            quality: 1000,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => range.quality = weight(value)?,
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value),
                // Prometheus 3 also sends an escaping scheme for names; these names need none.
                _ => {}
            }
        }
        Some(range)
    }

    /// How specifically it matches a format; `None` if it does not.
    fn exactness(&self, format: ExpositionFormat) -> Option<u8> {
        let (kind, subtype, version) = format.media();
        let is_kind = self.kind.eq_ignore_ascii_case(kind);
        let is_subtype = self.subtype.eq_ignore_ascii_case(subtype);
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (_, "*") if is_kind => Some(1),
            _ if is_kind && is_subtype => match self.version {
                None => Some(2),
                Some(wanted) => (wanted == version).then_some(3),
            },
            _ => None,
        }
    }
}

/// A weight between 0 and 1, in thousandths.
fn weight(text: &str) -> Option<u16> {
    let weight: f64 = text.parse().ok()?;
    // Within 0 to 1000 the cast is exact.
    (0.0..=1.0)
        .contains(&weight)
        .then(|| (weight * 1000.0).round() as u16)
}

/// The weight that the most specific range assigns to a format, and how specific it is; the highest among equals.
fn quality(accepted: &[AcceptedMediaRange<'_>], format: ExpositionFormat) -> (u16, u8) {
    let ranges = accepted
        .iter()
        .filter_map(|range| Some((range.exactness(format)?, range.quality)));
    ranges
        .max()
        .map_or((0, 0), |(exactness, quality)| (quality, exactness))
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
