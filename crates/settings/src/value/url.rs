//! A TCP address that is required, a URL without a path, and one with a place for a trace id.

use std::net::SocketAddr;

use super::{UnparsedValue, ValueError, ValueKind, quoted};

/// A TCP address to listen on.
#[derive(Clone, Copy, Debug)]
pub struct TcpAddress;

impl ValueKind for TcpAddress {
    type Value = SocketAddr;

    fn words(&self) -> String {
        "an IP address with a port such as \"127.0.0.1:0\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<SocketAddr, ValueError> {
        let text = raw.text(self)?;
        // Names are not resolved, because a daemon of the node must not wait for DNS to start.
        text.parse()
            .map_err(|_| ValueError::TcpAddress(text.to_owned()))
    }

    fn show(&self, value: &SocketAddr) -> String {
        quoted(value)
    }
}

/// A base URL: scheme, host and optionally a port.
#[derive(Clone, Copy, Debug)]
pub struct HttpBaseUrl;

impl ValueKind for HttpBaseUrl {
    type Value = String;

    fn words(&self) -> String {
        "a URL without a path such as \"https://node.example:10010\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let (uri, _) = http_url(text).map_err(ValueError::BaseUrl)?;
        if uri.path() != "/" || uri.query().is_some() {
            return Err(ValueError::BaseUrl("no path belongs there"));
        }
        Ok(text.trim_end_matches('/').to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

/// Parses a URL with a host and without user and password.
fn http_url(text: &str) -> Result<(http::Uri, http::uri::Authority), &'static str> {
    let uri: http::Uri = text.parse().map_err(|_| "not a URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("it must begin with http:// or https://");
    }
    let authority = uri.authority().cloned().ok_or("no host")?;
    if authority.as_str().contains('@') {
        return Err("no user and password belong there");
    }
    Ok((uri, authority))
}

/// A URL of a page that shows a trace, with `{trace_id}` in the place of its id.
#[derive(Clone, Copy, Debug)]
pub struct TracePageUrl;

impl TracePageUrl {
    /// Replaced by the id, in hex.
    pub const ID: &str = "{trace_id}";
}

impl ValueKind for TracePageUrl {
    type Value = String;

    fn words(&self) -> String {
        "a URL with the placeholder {trace_id} such as \"https://jaeger.example/trace/{trace_id}\""
            .to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        if !text.contains(Self::ID) {
            return Err(ValueError::TraceUrl("it has no {trace_id}"));
        }
        let (_, authority) =
            http_url(&text.replace(Self::ID, "0")).map_err(ValueError::TraceUrl)?;
        if text.contains(authority.as_str()) {
            Ok(text.to_owned())
        } else {
            let why = "{trace_id} belongs into the path or the query";
            Err(ValueError::TraceUrl(why))
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_never_off() {
        let read = |text| TcpAddress.read(&UnparsedValue::Text(text));
        assert_eq!(read("127.0.0.1:0").map(|a| a.port()), Ok(0));
        assert_eq!(read("[::1]:80").map(|a| a.port()), Ok(80));
        for text in ["off", "localhost:0", ":0", ""] {
            assert_eq!(read(text), Err(ValueError::TcpAddress(text.to_owned())));
        }
    }

    #[test]
    fn a_base_url_ends_with_its_host() {
        let read = |text| HttpBaseUrl.read(&UnparsedValue::Text(text));
        assert_eq!(read("http://node/"), Ok("http://node".to_owned()));
        assert_eq!(read("https://[::1]:1"), Ok("https://[::1]:1".to_owned()));
        for text in [
            "node:80",
            "ftp://node",
            "http://",
            "http://node/exec",
            "http://node/?x",
            "http://me:pw@node",
            "",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_trace_url_has_a_place_for_the_id_and_no_secrets() {
        let read = |text| TracePageUrl.read(&UnparsedValue::Text(text));
        for text in [
            "https://jaeger.example/trace/{trace_id}",
            "http://grafana:3000/explore?left=%7B%22query%22:%22{trace_id}%22%7D",
            "http://[::1]:16686/trace/{trace_id}?uiEmbed=v0#x",
        ] {
            assert_eq!(read(text), Ok(text.to_owned()));
        }
        for text in [
            "https://jaeger.example/trace/",
            "javascript:alert({trace_id})",
            "ftp://a/{trace_id}",
            "/trace/{trace_id}",
            "https://{trace_id}/",
            "https://a/{trace_id}\"><script>",
            "https://a/ {trace_id}",
            "",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read("https://me:hunter2@a/{trace_id}").expect_err("refused");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
