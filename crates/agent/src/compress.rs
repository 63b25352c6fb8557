//! Compresses metrics. A scrape of a busy node is about 170 kB of text; gzip makes it less than a tenth of that.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::Full;

/// Shorter bodies are sent as they are, in bytes.
const MIN_COMPRESSED_LEN: usize = 1 << 10;

/// A response with this body, compressed if the client accepts gzip.
pub(crate) fn response(request: &HeaderMap, body: Bytes) -> Response<Full<Bytes>> {
    let compressed = (body.len() >= MIN_COMPRESSED_LEN && accepts_gzip(request))
        .then(|| gzip(&body))
        .flatten();
    let is_compressed = compressed.is_some();
    let mut response = Response::new(Full::new(compressed.unwrap_or(body)));
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body).ok()?;
    Some(encoder.finish().ok()?.into())
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip")
            && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_for_clients_that_accept_it() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
