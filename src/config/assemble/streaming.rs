//! `[streaming]`

use crate::config::document::{Reader, path_of};
use crate::config::error::Problem;
use crate::config::schema as keys;
use crate::config::{Streaming, StreamingTls};

pub(in crate::config) fn streaming(reader: &mut Reader<'_>) -> Streaming {
    let scope = reader.section(keys::STREAMING_LISTEN.section);
    let base_url = reader.given(&scope, &keys::STREAMING_BASE_URL);
    let cert = reader.given(&scope, &keys::STREAMING_TLS_CERT);
    let key = reader.given(&scope, &keys::STREAMING_TLS_KEY);
    let tls = match (cert, key) {
        (Some(cert), Some(key)) => Some(StreamingTls {
            cert: cert.value,
            key: key.value,
        }),
        (Some(cert), None) => {
            let path = path_of(&scope, &keys::STREAMING_TLS_CERT);
            reader.fail(cert.place, path, Problem::OnlyHalf("tls_key"));
            None
        }
        (None, Some(key)) => {
            let path = path_of(&scope, &keys::STREAMING_TLS_KEY);
            reader.fail(key.place, path, Problem::OnlyHalf("tls_cert"));
            None
        }
        (None, None) => None,
    };
    Streaming {
        listen: reader.value(&scope, &keys::STREAMING_LISTEN),
        base_url: base_url.map(|url| url.value),
        tls,
        idle_timeout: reader.value(&scope, &keys::STREAMING_IDLE_TIMEOUT),
        creation_timeout: reader.value(&scope, &keys::STREAMING_CREATION_TIMEOUT),
        max_sessions: reader.value(&scope, &keys::STREAMING_MAX_SESSIONS),
        audit_commands: reader.value(&scope, &keys::STREAMING_AUDIT_COMMANDS),
        observe: reader.value(&scope, &keys::STREAMING_OBSERVE),
    }
}
