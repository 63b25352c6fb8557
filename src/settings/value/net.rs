//! Addresses on the network.

use std::net::SocketAddr;

use super::{Kind, Raw, ValueError, quoted};

/// A TCP address to listen on, or `off`.
pub(crate) struct Address;

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
pub(crate) struct HostName;

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

/// The endpoint for spans.
pub(crate) struct CollectorUrl;

impl Kind for CollectorUrl {
    type Value = String;

    fn words(&self) -> String {
        "the URL of an OTLP/gRPC collector such as \"http://127.0.0.1:4317\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let wrong = |why| Err(ValueError::Collector(why));
        let Ok(uri) = text.parse::<http::Uri>() else {
            return wrong("not a URL");
        };
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return wrong("TLS is not built in, use a collector on this node");
            }
            _ => return wrong("it must begin with http://"),
        }
        let Some(authority) = uri.authority() else {
            return wrong("no host");
        };
        if authority.as_str().contains('@') {
            return wrong("no user and password belong there");
        }
        // OTLP/HTTP has a path (/v1/traces), OTLP/gRPC none.
        if uri.path() != "/" || uri.query().is_some() {
            return wrong("OTLP over gRPC has no path");
        }
        if authority.port_u16().is_none() {
            return wrong("no port");
        }
        Ok(text.to_owned())
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
        assert!(read("http://[::1]:4317/").is_ok());
        for text in [
            "127.0.0.1:4317",
            "https://a:4317",
            "grpc://a:4317",
            "http://a",
            "http://a:4317/v1/traces",
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
