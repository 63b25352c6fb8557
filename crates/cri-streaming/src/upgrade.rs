//! Negotiation, without I/O: chooses one of the protocols that the client offers, and creates the response. The order of
//! the checks and the status codes are those of the reference server.

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::observe::{SessionKind, Transport};
use super::websocket::accept_key;

/// The list of protocols of the SPDY upgrade, one per line or separated by commas.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The protocols that the server supports.
const ACCEPTED_VERSIONS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

/// The protocol after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionProtocol {
    /// SPDY streams; the version of the remote command protocol, 1 to 5.
    SpdyRemote(u8),
    /// SPDY streams, two for each connection.
    SpdyForward,
    /// Messages that begin with the number of a channel; for port-forward the version has no meaning.
    Channels {
        /// Version of the remote command protocol, 1 to 5.
        version: u8,
        /// Set if messages are text.
        base64: bool,
    },
    /// SPDY tunnelled in WebSocket messages.
    Tunnel,
}

impl SessionProtocol {
    pub(super) fn transport(self) -> Transport {
        match self {
            Self::SpdyRemote(_) | Self::SpdyForward => Transport::Spdy,
            Self::Channels { .. } | Self::Tunnel => Transport::WebSocket,
        }
    }
}

/// A protocol and its name on the wire.
pub(super) type NamedProtocol = (&'static str, SessionProtocol);

const fn channels(version: u8, base64: bool) -> SessionProtocol {
    SessionProtocol::Channels { version, base64 }
}

const SPDY_REMOTE: &[NamedProtocol] = &[
    ("v5.channel.k8s.io", SessionProtocol::SpdyRemote(5)),
    ("v4.channel.k8s.io", SessionProtocol::SpdyRemote(4)),
    ("v3.channel.k8s.io", SessionProtocol::SpdyRemote(3)),
    ("v2.channel.k8s.io", SessionProtocol::SpdyRemote(2)),
    ("channel.k8s.io", SessionProtocol::SpdyRemote(1)),
];
const SPDY_FORWARD: &[NamedProtocol] = &[("portforward.k8s.io", SessionProtocol::SpdyForward)];
const WEBSOCKET_REMOTE: &[NamedProtocol] = &[
    ("v5.channel.k8s.io", channels(5, false)),
    ("v4.channel.k8s.io", channels(4, false)),
    ("v4.base64.channel.k8s.io", channels(4, true)),
    ("channel.k8s.io", channels(1, false)),
    ("base64.channel.k8s.io", channels(1, true)),
];
const WEBSOCKET_FORWARD: &[NamedProtocol] = &[
    ("SPDY/3.1+portforward.k8s.io", SessionProtocol::Tunnel),
    ("v4.channel.k8s.io", channels(4, false)),
    ("v4.base64.channel.k8s.io", channels(4, true)),
];
/// The name, in metrics and logs, of the default protocol of a WebSocket without a list of protocols.
const WEBSOCKET_PLAIN: NamedProtocol = ("none", channels(1, false));

/// Returns the protocol that an upstream chose, from the lists above; `None` if it is not one of them.
pub fn protocol_name(
    kind: SessionKind,
    transport: Transport,
    chosen: Option<&str>,
) -> Option<&'static str> {
    let known = match (transport, kind) {
        (Transport::Spdy, SessionKind::PortForward) => SPDY_FORWARD,
        (Transport::Spdy, _) => SPDY_REMOTE,
        (Transport::WebSocket, SessionKind::PortForward) => WEBSOCKET_FORWARD,
        (Transport::WebSocket, _) => WEBSOCKET_REMOTE,
        // The chosen protocol could not be parsed.
        (Transport::Tls, _) => return None,
    };
    match chosen {
        None => Some(WEBSOCKET_PLAIN.0),
        Some(chosen) => known
            .iter()
            .map(|(name, _)| *name)
            .find(|name| *name == chosen),
    }
}

/// The response to a request, and the protocol if it is accepted.
#[derive(Debug)]
pub(super) struct Negotiation {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Why the request is refused, as sent in the response.
    pub(super) why: &'static str,
    /// The protocol and its name.
    pub(super) chosen: Option<NamedProtocol>,
}

impl Negotiation {
    fn bad_request(why: &'static str) -> Self {
        Self::refused(StatusCode::BAD_REQUEST, why)
    }

    fn refused(status: StatusCode, why: &'static str) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            why,
            chosen: None,
        }
    }
}

/// Negotiates the protocol of a session of this kind from the head of its request.
pub(super) fn negotiate(kind: SessionKind, method: &Method, headers: &HeaderMap) -> Negotiation {
    if !mentions(headers, &CONNECTION, "upgrade") {
        return Negotiation::bad_request("no upgrade was requested");
    }
    if mentions(headers, &UPGRADE, "websocket") {
        websocket(kind, method, headers)
    } else if mentions(headers, &UPGRADE, "spdy/3.1") {
        spdy(kind, headers)
    } else {
        Negotiation::bad_request("upgrade to SPDY/3.1 or websocket only")
    }
}

fn spdy(kind: SessionKind, headers: &HeaderMap) -> Negotiation {
    let known = match kind {
        SessionKind::Exec | SessionKind::Attach => SPDY_REMOTE,
        SessionKind::PortForward => SPDY_FORWARD,
    };
    let Some(offered) = list(headers, &PROTOCOL_VERSION) else {
        return Negotiation::bad_request("X-Stream-Protocol-Version is missing");
    };
    let Some(chosen) = first_known(&offered, known) else {
        let mut answer = Negotiation::refused(StatusCode::FORBIDDEN, "no protocol in common");
        for (name, _) in known {
            let name = HeaderValue::from_static(name);
            answer.headers.append(ACCEPTED_VERSIONS, name);
        }
        return answer;
    };
    let mut headers = switching("SPDY/3.1");
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(chosen.0));
    accepted(headers, chosen)
}

fn websocket(kind: SessionKind, method: &Method, headers: &HeaderMap) -> Negotiation {
    if method != Method::GET {
        return Negotiation::bad_request("a websocket begins with GET");
    }
    if !mentions(headers, &SEC_WEBSOCKET_VERSION, "13") {
        return Negotiation::bad_request("Sec-WebSocket-Version must be 13");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let accept = key.and_then(|key| accept_key(key.to_str().ok()?));
    let Some(Ok(accept)) = accept.map(HeaderValue::try_from) else {
        return Negotiation::bad_request("Sec-WebSocket-Key must be 16 bytes in base64");
    };
    let known = match kind {
        SessionKind::Exec | SessionKind::Attach => WEBSOCKET_REMOTE,
        SessionKind::PortForward => WEBSOCKET_FORWARD,
    };
    let mut answer = switching("websocket");
    answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    let Some(offered) = list(headers, &SEC_WEBSOCKET_PROTOCOL) else {
        return accepted(answer, WEBSOCKET_PLAIN);
    };
    let Some(chosen) = first_known(&offered, known) else {
        return Negotiation::refused(StatusCode::FORBIDDEN, "no protocol in common");
    };
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen.0));
    accepted(answer, chosen)
}

fn switching(to: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(to));
    headers
}

fn accepted(headers: HeaderMap, chosen: NamedProtocol) -> Negotiation {
    Negotiation {
        status: StatusCode::SWITCHING_PROTOCOLS,
        headers,
        why: "",
        chosen: Some(chosen),
    }
}

/// Returns whether a header contains a word anywhere, in any case, like the check of the reference server.
fn mentions(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.any(|value| {
        let value = value.as_bytes().to_ascii_lowercase();
        value
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    })
}

/// Returns the values of a header, which may have several lines, comma-separated lists, or both; `None` if absent.
fn list<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Vec<&'h str>> {
    let lines = headers.get_all(name).iter();
    let values: Vec<_> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
        .collect();
    (!values.is_empty()).then_some(values)
}

/// Returns the first supported protocol of the client's list: clients list them in order of preference.
fn first_known(offered: &[&str], known: &[NamedProtocol]) -> Option<NamedProtocol> {
    offered
        .iter()
        .find_map(|offer| known.iter().find(|(name, _)| name == offer))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        headers
    }

    fn spdy_with(kind: SessionKind, protocols: &[&'static str]) -> Negotiation {
        let mut headers = map(&[
            ("connection", "keep-alive, UPGRADE"),
            ("upgrade", "SPDY/3.1"),
        ]);
        for protocol in protocols {
            headers.append(PROTOCOL_VERSION, HeaderValue::from_static(protocol));
        }
        negotiate(kind, &Method::POST, &headers)
    }

    fn websocket_with(kind: SessionKind, protocol: &'static str) -> Negotiation {
        let headers = map(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocol),
        ]);
        negotiate(kind, &Method::GET, &headers)
    }

    #[test]
    fn the_first_supported_protocol_of_the_client_is_chosen() {
        let answer = spdy_with(
            SessionKind::Exec,
            &["v9.channel.k8s.io", "v4.channel.k8s.io, v5.channel.k8s.io"],
        );
        assert_eq!(answer.status, StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(
            answer.chosen,
            Some(("v4.channel.k8s.io", SessionProtocol::SpdyRemote(4)))
        );
        assert_eq!(answer.headers[PROTOCOL_VERSION], "v4.channel.k8s.io");
        assert_eq!(answer.headers[UPGRADE], "SPDY/3.1");
        for (name, protocol) in SPDY_REMOTE {
            let chosen = spdy_with(SessionKind::Attach, &[name]).chosen;
            assert_eq!(chosen, Some((*name, *protocol)));
        }
        for (name, protocol) in WEBSOCKET_FORWARD {
            let answer = websocket_with(SessionKind::PortForward, name);
            assert_eq!(answer.chosen, Some((*name, *protocol)));
            assert_eq!(answer.headers[SEC_WEBSOCKET_PROTOCOL], *name);
            assert_eq!(
                answer.headers[SEC_WEBSOCKET_ACCEPT],
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            );
        }
    }

    #[test]
    fn a_missing_list_means_version_1_over_websocket_and_is_an_error_over_spdy() {
        let answer = websocket_with(SessionKind::Exec, "");
        assert_eq!(answer.chosen, Some(WEBSOCKET_PLAIN));
        assert!(!answer.headers.contains_key(SEC_WEBSOCKET_PROTOCOL));
        assert_eq!(
            spdy_with(SessionKind::Exec, &[]).status,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(
            spdy_with(SessionKind::Exec, &[""]).status,
            StatusCode::BAD_REQUEST
        );
    }

    #[test]
    fn no_common_protocol_is_403_with_the_supported_ones() {
        let answer = spdy_with(SessionKind::PortForward, &["v4.channel.k8s.io"]);
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert_eq!(answer.headers[ACCEPTED_VERSIONS], "portforward.k8s.io");
        let answer = spdy_with(SessionKind::Exec, &["v9.channel.k8s.io"]);
        let accepted = answer.headers.get_all(ACCEPTED_VERSIONS);
        assert_eq!(accepted.iter().count(), SPDY_REMOTE.len());
        let answer = websocket_with(SessionKind::Exec, "SPDY/3.1+portforward.k8s.io");
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn an_incomplete_upgrade_is_400() {
        let no = |method: Method, lines: &[(&'static str, &'static str)]| {
            let answer = negotiate(SessionKind::Exec, &method, &map(lines));
            answer.chosen.is_none() && answer.status == StatusCode::BAD_REQUEST
        };
        let upgrade = ("connection", "upgrade");
        let websocket = ("upgrade", "websocket");
        let version = ("sec-websocket-version", "13");
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        assert!(no(Method::GET, &[]));
        assert!(no(Method::GET, &[upgrade]));
        assert!(no(Method::GET, &[("upgrade", "SPDY/3.1")]));
        assert!(no(Method::GET, &[upgrade, ("upgrade", "h2c")]));
        assert!(no(Method::GET, &[upgrade, websocket, version]));
        assert!(no(Method::GET, &[upgrade, websocket, key]));
        assert!(no(Method::POST, &[upgrade, websocket, version, key]));
        assert!(!no(Method::GET, &[upgrade, websocket, version, key]));
    }
}
