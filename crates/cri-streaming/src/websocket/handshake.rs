//! The handshake: `Sec-WebSocket-Accept`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The GUID of RFC 6455 section 1.3.
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`; `None` if the key is not 16 bytes in base64.
pub(crate) fn accept_key(key: &str) -> Option<String> {
    let bytes = STANDARD.decode(key).ok()?;
    if bytes.len() != 16 {
        return None;
    }
    let text = format!("{key}{WEBSOCKET_GUID}");
    Some(STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_is_accepted() {
        assert_eq!(
            accept_key("dGhlIHNhbXBsZSBub25jZQ==").as_deref(),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        assert_eq!(accept_key("short"), None);
        assert_eq!(accept_key(""), None);
        assert_eq!(accept_key("c2hvcnQ="), None);
    }
}
