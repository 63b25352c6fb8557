//! The values of `[streaming]` that are in effect.

use super::Listing;
use crate::config::schema as keys;
use crate::config::{Streaming, StreamingTls};

pub(super) fn list_streaming(list: &mut Listing, streaming: &Streaming) {
    let Streaming {
        listen,
        base_url,
        tls,
        idle_timeout,
        creation_timeout,
        max_sessions,
        audit_commands,
        observe,
    } = streaming;
    list.add(&keys::STREAMING_LISTEN, listen);
    list.add_if(&keys::STREAMING_BASE_URL, base_url.as_ref());
    if let Some(StreamingTls { cert, key }) = tls {
        list.add(&keys::STREAMING_TLS_CERT, cert);
        list.add(&keys::STREAMING_TLS_KEY, key);
    }
    list.add(&keys::STREAMING_IDLE_TIMEOUT, idle_timeout);
    list.add(&keys::STREAMING_CREATION_TIMEOUT, creation_timeout);
    list.add(&keys::STREAMING_MAX_SESSIONS, max_sessions);
    list.add(&keys::STREAMING_AUDIT_COMMANDS, audit_commands);
    list.add(&keys::STREAMING_OBSERVE, observe);
}
