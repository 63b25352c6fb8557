//! Addresses on the network.

use std::net::SocketAddr;

use super::{Kind, Raw, ValueError, quoted};

/// A TCP address to listen on, or `off`.
#[derive(Clone, Copy, Debug)]
pub struct Address;

impl Kind for Address {
    type Value = Option<SocketAddr>;

    fn words(&self) -> String {
        "an IP address with a port such as \"127.0.0.1:9478\", or \"off\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<Option<SocketAddr>, ValueError> {
        let text = raw.text(self)?;
        if text == "off" {
            return Ok(None);
        }
        // Names are not resolved, because a daemon of the node must not wait for DNS to start.
        text.parse()
            .map(Some)
            .map_err(|_| ValueError::Address(text.to_owned()))
    }

    fn show(&self, value: &Option<SocketAddr>) -> String {
        match value {
            Some(address) => quoted(address),
            None => quoted("off"),
        }
    }
}

/// A host name, or with a leading dot all names below it.
#[derive(Clone, Copy, Debug)]
pub struct HostName;

impl Kind for HostName {
    type Value = String;

    fn words(&self) -> String {
        "a host name such as \"node1.example.com\" or \".example.com\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let labels = text.strip_prefix('.').unwrap_or(text).split('.');
        let is_label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // RFC 1035, 2.3.4.
        match text.len() <= 254 && labels.into_iter().all(is_label) {
            true => Ok(text.to_ascii_lowercase()),
            false => Err(ValueError::HostName(text.to_owned())),
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

/// The URL of a collector.
#[derive(Clone, Copy, Debug)]
pub struct CollectorUrl;

impl CollectorUrl {
    /// Checks a URL, and returns whether it has a path.
    ///
    /// # Errors
    /// Why it cannot be one, without its text, which may contain a password.
    pub fn check(text: &str) -> Result<bool, &'static str> {
        let uri: http::Uri = text.parse().map_err(|_| "not a URL")?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("it must begin with http:// or https://");
        }
        let authority = uri.authority().ok_or("no host")?;
        if authority.as_str().contains('@') {
            return Err("no user and password belong there");
        }
        match uri.query() {
            Some(_) => Err("no query belongs there"),
            None => Ok(uri.path() != "/"),
        }
    }
}

impl Kind for CollectorUrl {
    type Value = String;

    fn words(&self) -> String {
        "the URL of an OTLP collector such as \"http://127.0.0.1:4317\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        Self::check(text).map_err(ValueError::Collector)?;
        // 443 is usual with TLS; 80 would be a slip.
        let port = text
            .parse::<http::Uri>()
            .ok()
            .and_then(|uri| uri.port_u16());
        match port {
            None if text.starts_with("http:") => Err(ValueError::Collector("no port")),
            _ => Ok(text.to_owned()),
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
    fn an_address_is_never_a_name() {
        let read = |text| Address.read(&Raw::Text(text));
        assert_eq!(read("off"), Ok(None));
        assert_eq!(read("[::1]:80").map(|a| a.is_some()), Ok(true));
        for text in [
            "localhost:9478",
            ":9478",
            "9478",
            "127.0.0.1",
            "",
            "127.0.0.1:70000",
        ] {
            assert_eq!(read(text), Err(ValueError::Address(text.to_owned())));
        }
        assert!(Address.read(&Raw::Boolean(false)).is_err());
    }

    #[test]
    fn a_host_name_has_no_port_and_no_wildcard() {
        let read = |text| HostName.read(&Raw::Text(text));
        assert_eq!(
            read("Node1.Example.com"),
            Ok("node1.example.com".to_owned())
        );
        assert_eq!(read(".example.com"), Ok(".example.com".to_owned()));
        for text in [
            "",
            ".",
            "a:80",
            "*.example.com",
            "a..b",
            "a/b",
            "http://a",
            "a b",
        ] {
            assert_eq!(read(text), Err(ValueError::HostName(text.to_owned())));
        }
    }

    #[test]
    fn a_collector_has_a_port_and_no_secrets() {
        let read = |text| CollectorUrl.read(&Raw::Text(text));
        assert_eq!(
            read("http://collector.example:4317"),
            Ok("http://collector.example:4317".to_owned())
        );
        for text in [
            "http://[::1]:4317/",
            "https://a",
            "https://a:4318/v1/traces",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in [
            "127.0.0.1:4317",
            "grpc://a:4317",
            "http://a",
            "http://a:4317/?x=1",
            "",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read("http://me:hunter2@a:4317")
            .expect_err("refused")
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
