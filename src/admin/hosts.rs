//! The hosts that a request over TCP may name. A web page whose name resolves to an address of this node (DNS rebinding) can
//! make a browser send requests here and read the responses, but the browser names the page's host in them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;

use super::plain::refusal;

/// Allowed names besides `localhost` and IP addresses; a leading dot allows every name below it.
#[derive(Clone, Debug)]
pub(super) struct AllowedHosts(Arc<[String]>);

impl AllowedHosts {
    /// The configured names, in lower case, and the host name of the node.
    pub(super) fn new(configured: &[String], node: &str) -> Self {
        let node = node.trim_end_matches('.').to_ascii_lowercase();
        let node = Some(node).filter(|node| !node.is_empty());
        Self(configured.iter().cloned().chain(node).collect())
    }

    /// Returns whether a request may name this host, with or without a port.
    fn allows(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<Authority>() else {
            return false;
        };
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host();
        // Only a port may follow.
        let port = authority.as_str().strip_prefix(host);
        if !port.is_some_and(|port| port.is_empty() || port.starts_with(':')) {
            return false;
        }
        if let Some(six) = host.strip_prefix('[') {
            return six
                .strip_suffix(']')
                .is_some_and(|six| six.parse::<Ipv6Addr>().is_ok());
        }
        // An address cannot be rebound.
        if host.parse::<Ipv4Addr>().is_ok() {
            return true;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host == "localhost"
            || self.0.iter().any(|name| {
                if name.starts_with('.') {
                    host.len() > name.len() && host.ends_with(name)
                } else {
                    host == *name
                }
            })
    }

    /// The status for a request that names another host, or none.
    fn refusal(&self, request: &Request) -> Option<StatusCode> {
        let mut named = request.headers().get_all(HOST).iter();
        let host = match (named.next(), named.next()) {
            (Some(host), None) => host.to_str().ok(),
            // HTTP/1.0 does not require it, and no browser speaks HTTP/1.0.
            (None, _) if request.version() == Version::HTTP_10 => Some("localhost"),
            _ => return Some(StatusCode::BAD_REQUEST),
        };
        // A host in the request line overrides the header (RFC 9112, section 3.2.2); both must be allowed.
        let line = request.uri().authority().map(Authority::as_str);
        let all = [line, Some(host.unwrap_or_default())];
        let good = all.into_iter().flatten().all(|host| self.allows(host));
        (!good).then_some(StatusCode::MISDIRECTED_REQUEST)
    }
}

/// Refuses requests for other hosts.
pub(super) async fn check(
    State(hosts): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.refusal(&request) {
        None => next.run(request).await,
        Some(status) => {
            let text = "this host name is not served here: use an IP address, or set admin.allowed_hosts\n";
            refusal(request.headers(), status, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_served() {
        let configured = [
            "metrics.example.com".to_owned(),
            ".nodes.example.com".to_owned(),
        ];
        let hosts = AllowedHosts::new(&configured, "Node-1.");
        for good in [
            "127.0.0.1:9478",
            "10.1.2.3",
            "[::1]:9478",
            "[fd00::1]",
            "localhost:1",
            "LOCALHOST.",
            "node-1:9478",
            "metrics.example.com",
            "a.nodes.example.com:9478",
            "A.B.nodes.example.com",
        ] {
            assert!(hosts.allows(good), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:9478",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "nodes.example.com",
            ".nodes.example.com",
            "xnodes.example.com",
            "node-1.evil.example",
            "metrics.example.com.evil.example",
            "me@localhost",
            "[::1].evil.example",
            "[evil]",
            "127.1",
            "0x7f000001",
            "",
            "a b",
        ] {
            assert!(!hosts.allows(bad), "{bad}");
        }
        assert!(!AllowedHosts::new(&[], "").allows(""));
    }

    #[test]
    fn each_place_where_a_host_is_named_counts() {
        let hosts = AllowedHosts::new(&[], "node");
        let refused = |uri: &str, named: &[&str], version| {
            let mut request = Request::get(uri).version(version);
            for host in named {
                request = request.header(HOST, *host);
            }
            let request = request.body(axum::body::Body::empty()).expect("a request");
            hosts.refusal(&request).map(|status| status.as_u16())
        };
        let one = Version::HTTP_11;
        assert_eq!(refused("/", &["node:1"], one), None);
        assert_eq!(refused("/", &["evil.example"], one), Some(421));
        assert_eq!(refused("http://evil.example/", &["node"], one), Some(421));
        assert_eq!(refused("http://node/", &["evil.example"], one), Some(421));
        assert_eq!(refused("/", &[], one), Some(400));
        assert_eq!(refused("/", &["node", "node"], one), Some(400));
        assert_eq!(refused("/", &[], Version::HTTP_10), None);
        assert_eq!(refused("/", &["evil.example"], Version::HTTP_10), Some(421));
    }
}
