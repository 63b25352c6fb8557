//! Addresses on the network.

use std::net::{Ipv6Addr, SocketAddr};

use super::{UnparsedValue, ValueError, ValueKind, quoted};

/// A TCP address to listen on, or `off`.
#[derive(Clone, Copy, Debug)]
pub struct ListenAddress;

impl ValueKind for ListenAddress {
    type Value = Option<SocketAddr>;

    fn words(&self) -> String {
        "an IP address with a port such as \"127.0.0.1:9478\", or \"off\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Option<SocketAddr>, ValueError> {
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

fn is_label(label: &str) -> bool {
    let mut bytes = label.bytes();
    !label.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// A host name, or with a leading dot all names below it.
#[derive(Clone, Copy, Debug)]
pub struct HostName;

impl ValueKind for HostName {
    type Value = String;

    fn words(&self) -> String {
        "a host name such as \"node1.example.com\" or \".example.com\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let mut labels = text.strip_prefix('.').unwrap_or(text).split('.');
        // RFC 1035, 2.3.4.
        if text.len() <= 254 && labels.all(is_label) {
            Ok(text.to_ascii_lowercase())
        } else {
            Err(ValueError::HostName(text.to_owned()))
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

/// A host name, an IP address, or with a leading dot all names below it; with or without a port.
#[derive(Clone, Copy, Debug)]
pub struct ServerName;

impl ValueKind for ServerName {
    type Value = String;

    fn words(&self) -> String {
        "a host with or without a port, such as \"store.example.com:9000\" or \".example.com\""
            .to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let (host, port) = match text.rsplit_once(':') {
            // A colon within brackets belongs to an address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => HostName.read(&UnparsedValue::Text(host)).is_ok(),
        };
        if is_port && is_host {
            return Ok(text.to_ascii_lowercase());
        }
        Err(ValueError::Type {
            expected: self.words(),
            found: raw.found(),
        })
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

impl ValueKind for CollectorUrl {
    type Value = String;

    fn words(&self) -> String {
        "the URL of an OTLP collector such as \"http://127.0.0.1:4317\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
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
        let read = |text| ListenAddress.read(&UnparsedValue::Text(text));
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
        assert!(ListenAddress.read(&UnparsedValue::Boolean(false)).is_err());
    }

    #[test]
    fn a_host_name_has_no_port_and_no_wildcard() {
        let read = |text| HostName.read(&UnparsedValue::Text(text));
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
    fn a_server_is_a_host_with_or_without_a_port() {
        let read = |text| ServerName.read(&UnparsedValue::Text(text));
        for text in [
            "Store.example",
            ".example.com",
            "a:9000",
            "10.0.0.7:80",
            "[fd00::1]",
            "[fd00::1]:80",
        ] {
            assert_eq!(read(text), Ok(text.to_ascii_lowercase()));
        }
        for text in [
            "", ":80", "a:", "a:0", "a:65536", "http://a", "a/b", "*.a", "fd00::1", "[a]:1", "[::1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_collector_has_a_port_and_no_secrets() {
        let read = |text| CollectorUrl.read(&UnparsedValue::Text(text));
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
