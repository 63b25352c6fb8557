//! The two layers of a connection: logical connections on one socket (containerd/nri, `pkg/net/multiplex`), and ttrpc in
//! each of them.
//!
//! ```text
//! socket:  | connection, 4 bytes | length, 4 bytes | data |          big endian
//! ttrpc:   | length, 4 bytes | stream, 4 bytes | type, 1 byte | flags, 1 byte | message |
//! ```
//!
//! A logical connection is a stream of bytes: a ttrpc message may be split over frames anywhere. The reader of the Go library
//! however takes a frame as a whole into the buffer that its caller offers, which has 4096 bytes at the beginning of a message
//! and then room for the rest of it; and it queues at most 256 frames. So a message is sent as its first 4096 bytes, and
//! everything else in a second frame.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Logical connection of the service Plugin: requests of the runtime.
pub(crate) const PLUGIN_CONNECTION: u32 = 1;
/// Logical connection of the service Runtime: requests of the plugin.
pub(crate) const RUNTIME_CONNECTION: u32 = 2;

/// The size of a frame's header.
pub(crate) const FRAME_HEADER: usize = 8;
/// The size of a ttrpc header.
const TTRPC_HEADER_LEN: usize = 10;
/// The longest ttrpc message without its header (containerd/ttrpc, `messageLengthMax`).
pub(crate) const MAX_MESSAGE: usize = 4 << 20;
/// The longest frame.
pub(crate) const MAX_FRAME: usize = TTRPC_HEADER_LEN + MAX_MESSAGE;
/// The longest first frame of a message.
const MAX_FIRST_FRAME: usize = 4096;

/// The type of a ttrpc message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Request,
    Response,
}

/// A request (ttrpc, `request.proto`).
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct TtrpcRequest {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) payload: Bytes,
    #[prost(int64, tag = "4")]
    pub(crate) timeout_nano: i64,
    #[prost(message, repeated, tag = "5")]
    pub(crate) metadata: Vec<RequestMetadata>,
}

/// A pair of metadata.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct RequestMetadata {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A response.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct TtrpcResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RpcStatus>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) payload: Bytes,
}

/// `google.rpc.Status`, without its details.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// The frames of a ttrpc message; `None` if it is too long.
pub(crate) fn encode(
    connection: u32,
    stream: u32,
    kind: MessageKind,
    message: &impl Message,
) -> Option<Bytes> {
    let length = message.encoded_len();
    if length > MAX_MESSAGE {
        return None;
    }
    let mut plain = BytesMut::with_capacity(TTRPC_HEADER_LEN + length);
    plain.put_u32(length as u32);
    plain.put_u32(stream);
    plain.put_u8(match kind {
        MessageKind::Request => 1,
        MessageKind::Response => 2,
    });
    plain.put_u8(0);
    // Cannot fail: the buffer grows.
    message.encode(&mut plain).ok()?;
    let mut frames = BytesMut::with_capacity(plain.len() + 2 * FRAME_HEADER);
    let first = plain.split_to(plain.len().min(MAX_FIRST_FRAME));
    for piece in [first, plain] {
        if !piece.is_empty() {
            frames.put_u32(connection);
            frames.put_u32(piece.len() as u32);
            frames.put_slice(&piece);
        }
    }
    Some(frames.freeze())
}

/// Takes the next complete ttrpc message out of the data of a logical connection: its stream and content.
///
/// # Errors
/// The problem of an invalid message.
pub(crate) fn decode(
    data: &mut BytesMut,
    kind: MessageKind,
) -> Result<Option<(u32, Bytes)>, String> {
    if data.len() < TTRPC_HEADER_LEN {
        return Ok(None);
    }
    let mut head = &data[..TTRPC_HEADER_LEN];
    let (length, stream, typ) = (head.get_u32() as usize, head.get_u32(), head.get_u8());
    if length > MAX_MESSAGE {
        return Err(format!("a message of {length} bytes"));
    }
    let known = match kind {
        MessageKind::Request => 1,
        MessageKind::Response => 2,
    };
    if typ != known {
        return Err(format!("a message of type {typ} instead of {known}"));
    }
    // Clients number their streams with odd numbers.
    if stream % 2 == 0 {
        return Err(format!("stream {stream}"));
    }
    if data.len() < TTRPC_HEADER_LEN + length {
        return Ok(None);
    }
    data.advance(TTRPC_HEADER_LEN);
    Ok(Some((stream, data.split_to(length).freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> TtrpcRequest {
        TtrpcRequest {
            service: "service".to_owned(),
            payload: vec![7; bytes].into(),
            ..TtrpcRequest::default()
        }
    }

    /// The frames of an encoded message: connection and data.
    fn frames(mut all: Bytes) -> Vec<(u32, Bytes)> {
        let mut list = Vec::new();
        while !all.is_empty() {
            let connection = all.get_u32();
            let length = all.get_u32() as usize;
            list.push((connection, all.split_to(length)));
        }
        list
    }

    #[test]
    fn messages_of_any_size_are_sent_in_frames_that_the_go_library_reads() {
        for bytes in [0, 10, 4000, 4096, 5000, 100_000, 4_000_000] {
            let sent = request(bytes);
            let all = encode(PLUGIN_CONNECTION, 3, MessageKind::Request, &sent).expect("fits");
            let frames = frames(all);
            assert!(frames.len() <= 2 && frames[0].1.len() <= 4096, "{bytes}");
            // Given byte by byte at its beginning, it arrives all the same.
            let mut data = BytesMut::new();
            let mut got = None;
            for (connection, piece) in frames {
                assert_eq!(connection, PLUGIN_CONNECTION);
                let (bytewise, rest) = piece.split_at(piece.len().min(20));
                for byte in bytewise {
                    data.put_u8(*byte);
                    got = got.or(decode(&mut data, MessageKind::Request).expect("valid"));
                }
                data.put_slice(rest);
                got = got.or(decode(&mut data, MessageKind::Request).expect("valid"));
            }
            let (stream, message) = got.expect("complete");
            assert_eq!(stream, 3);
            assert!(TtrpcRequest::decode(message).expect("a request") == sent);
        }
    }

    #[test]
    fn what_is_too_long_or_out_of_place_is_refused() {
        assert!(encode(1, 1, MessageKind::Request, &request(MAX_MESSAGE)).is_none());
        for (head, what) in [
            ([0xff, 0, 0, 0, 0, 0, 0, 1, 1, 0], "bytes"),
            ([0, 0, 0, 0, 0, 0, 0, 1, 2, 0], "type 2"),
            ([0, 0, 0, 0, 0, 0, 0, 2, 1, 0], "stream 2"),
        ] {
            let error = decode(&mut BytesMut::from(&head[..]), MessageKind::Request);
            let error = error.expect_err(what);
            assert!(error.contains(what), "{error}");
        }
    }
}
