//! A TCP address that is required, and a URL without a path.

use std::net::SocketAddr;

use super::{Kind, Raw, ValueError, quoted};

/// A TCP address to listen on.
pub(crate) struct TcpAddress;

impl Kind for TcpAddress {
    type Value = SocketAddr;

    fn words(&self) -> String {
        "an IP address with a port such as \"127.0.0.1:0\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<SocketAddr, ValueError> {
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
pub(crate) struct BaseUrl;

impl Kind for BaseUrl {
    type Value = String;

    fn words(&self) -> String {
        "a URL without a path such as \"https://node.example:10010\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let wrong = |why| Err(ValueError::BaseUrl(why));
        let Ok(uri) = text.parse::<http::Uri>() else {
            return wrong("not a URL");
        };
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return wrong("it must begin with http:// or https://");
        }
        match uri.authority() {
            None => return wrong("no host"),
            Some(authority) if authority.as_str().contains('@') => {
                return wrong("no user and password belong there");
            }
            Some(_) => {}
        }
        if uri.path() != "/" || uri.query().is_some() {
            return wrong("no path belongs there");
        }
        Ok(text.trim_end_matches('/').to_owned())
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
        let read = |text| TcpAddress.read(&Raw::Text(text));
        assert_eq!(read("127.0.0.1:0").map(|a| a.port()), Ok(0));
        assert_eq!(read("[::1]:80").map(|a| a.port()), Ok(80));
        for text in ["off", "localhost:0", ":0", ""] {
            assert_eq!(read(text), Err(ValueError::TcpAddress(text.to_owned())));
        }
    }

    #[test]
    fn a_base_url_ends_with_its_host() {
        let read = |text| BaseUrl.read(&Raw::Text(text));
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
}
