//! gRPC messages and headers as bytes, for wire-level tests.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// A gRPC message: flags, length, bytes.
pub fn message(bytes: &[u8]) -> Bytes {
    message_with(0, bytes)
}

/// A gRPC message with these flags.
pub fn message_with(flags: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + bytes.len());
    out.put_u8(flags);
    out.put_u32(bytes.len().try_into().expect("below 4 GiB"));
    out.put_slice(bytes);
    out.freeze()
}

/// A protobuf message as a gRPC message.
pub fn encode(m: &impl prost::Message) -> Bytes {
    message(&m.encode_to_vec())
}

/// Headers from names and values.
pub fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).expect("name"),
            HeaderValue::from_bytes(value.as_bytes()).expect("value"),
        );
    }
    map
}

/// Headers sorted by name; the values of one name keep their order.
pub fn sorted(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}
