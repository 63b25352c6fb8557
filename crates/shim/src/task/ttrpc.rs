//! ttrpc (containerd/ttrpc): messages behind a header of ten bytes on a stream socket.
//!
//! ```text
//! | length, 4 bytes | stream, 4 bytes | type, 1 byte | flags, 1 byte | message |          big endian
//! ```

use std::io;

use prost::Message;

const HEADER: usize = 10;

/// The longest message without its header (containerd/ttrpc, `messageLengthMax`).
const MAX_MESSAGE: usize = 4 << 20;

/// The type of a message.
pub(super) const REQUEST: u8 = 1;
pub(super) const RESPONSE: u8 = 2;

/// The header in which containerd and its shims pass the namespace.
const NAMESPACE: &str = "containerd-namespace-ttrpc";

/// A request (ttrpc, `request.proto`).
#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(string, tag = "1")]
    pub(super) service: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    pub(super) timeout_nano: i64,
    #[prost(message, repeated, tag = "5")]
    pub(super) metadata: Vec<Metadata>,
}

/// A pair of metadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A response.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) payload: Vec<u8>,
}

/// `google.rpc.Status`, without its details.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

impl Metadata {
    pub(super) fn namespace(name: &str) -> Self {
        Self {
            key: NAMESPACE.to_owned(),
            value: name.to_owned(),
        }
    }
}

/// Appends a message.
pub(super) fn encode(out: &mut Vec<u8>, stream: u32, kind: u8, message: &impl Message) {
    let body = message.encode_to_vec();
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&body);
}

/// Takes the next complete message of this type from the received bytes: its stream and content.
///
/// # Errors
/// If the other end does not speak ttrpc, or sent another type of message.
pub(super) fn take(input: &mut Vec<u8>, kind: u8) -> io::Result<Option<(u32, Vec<u8>)>> {
    let Some(&[a, b, c, d, e, f, g, h, found, _]) = input.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > MAX_MESSAGE || found != kind {
        let what = format!("ttrpc: a message of type {found} with {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    if input.len() < HEADER + length {
        return Ok(None);
    }
    let message = input[HEADER..HEADER + length].to_vec();
    input.drain(..HEADER + length);
    Ok(Some((u32::from_be_bytes([e, f, g, h]), message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_however_they_are_split() {
        let sent = Request {
            service: "containerd.task.v2.Task".to_owned(),
            method: "Wait".to_owned(),
            payload: vec![7; 300],
            metadata: vec![Metadata::namespace("k8s.io")],
            ..Request::default()
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, 5, REQUEST, &sent);
        // The form that the Go library sends: the length counts the message alone.
        assert_eq!(bytes[..4], ((bytes.len() - HEADER) as u32).to_be_bytes());
        let mut input = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            input.push(*byte);
            let taken = take(&mut input, REQUEST).expect("ttrpc");
            assert_eq!(taken.is_some(), at + 1 == bytes.len());
            if let Some((stream, message)) = taken {
                assert_eq!(stream, 5);
                assert_eq!(Request::decode(&*message), Ok(sent.clone()));
            }
        }
        assert!(input.is_empty());
    }

    #[test]
    fn what_is_too_long_or_of_another_type_is_refused() {
        let mut long = vec![0xff, 0, 0, 0, 0, 0, 0, 1, RESPONSE, 0];
        take(&mut long, RESPONSE).expect_err("too long");
        let mut request = vec![0, 0, 0, 0, 0, 0, 0, 1, REQUEST, 0];
        take(&mut request, RESPONSE).expect_err("a request");
    }
}
