//! Content negotiation by `Accept` (RFC 9110, section 12.5.1): the format of metrics, and pages for browsers.

use axum::http::{HeaderMap, header};

/// A format that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    kind: &'static str,
    subtype: &'static str,
    version: Option<&'static str>,
}

impl MediaType {
    /// `KIND/SUBTYPE`, without a version.
    pub(super) const fn new(kind: &'static str, subtype: &'static str) -> Self {
        Self {
            kind,
            subtype,
            version: None,
        }
    }

    /// Sets the version of the format.
    pub(super) const fn with_version(self, version: &'static str) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }
}

/// Exactness from which a range names a format.
pub(super) const NAMED: u8 = 2;

/// One entry of `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptedMediaRange<'a> {
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

    /// Exactness with which the range matches a format; `None` if it does not match.
    fn exactness(&self, format: MediaType) -> Option<u8> {
        let is_kind = self.kind.eq_ignore_ascii_case(format.kind);
        let is_subtype = self.subtype.eq_ignore_ascii_case(format.subtype);
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (_, "*") if is_kind => Some(1),
            _ if is_kind && is_subtype => match self.version {
                None => Some(NAMED),
                Some(wanted) => (format.version == Some(wanted)).then_some(NAMED + 1),
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

/// The ranges that a request accepts.
pub(super) fn accepted(headers: &HeaderMap) -> Vec<AcceptedMediaRange<'_>> {
    let values = headers.get_all(header::ACCEPT).iter();
    let lists = values.filter_map(|value| value.to_str().ok());
    let ranges = lists.flat_map(|list| list.split(','));
    ranges.filter_map(AcceptedMediaRange::parse).collect()
}

/// The weight that the most specific range assigns to a format, and how specific it is; the highest among equals.
pub(super) fn quality(accepted: &[AcceptedMediaRange<'_>], format: MediaType) -> (u16, u8) {
    let ranges = accepted
        .iter()
        .filter_map(|range| Some((range.exactness(format)?, range.quality)));
    ranges
        .max()
        .map_or((0, 0), |(exactness, quality)| (quality, exactness))
}

/// Returns whether a browser asks: it names HTML, and does not like plain text as much. Programs that accept anything get plain text.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = accepted(headers);
    let (html, exactness) = quality(&accepted, MediaType::new("text", "html"));
    let (plain, exactness_of_plain) = quality(&accepted, MediaType::new("text", "plain"));
    exactness >= NAMED && html > 0 && (html > plain || exactness_of_plain < NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_pages_and_programs_text() {
        let table = [
            ("", false),
            ("*/*", false),
            ("text/*", false),
            ("text/plain", false),
            ("application/json", false),
            ("text/html", true),
            ("text/html, */*", true),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
                true,
            ),
            ("text/html;q=0", false),
            ("text/plain, text/html", false),
            ("text/plain, text/html;q=0.5", false),
            ("text/plain;q=0.5, text/html", true),
            // Prometheus 3.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                false,
            ),
        ];
        for (accept, html) in table {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.append(header::ACCEPT, accept.parse().expect("a value"));
            }
            assert_eq!(prefers_html(&headers), html, "{accept}");
        }
    }
}
