//! Logical connections on one socket (containerd/nri, `pkg/net/multiplex`). Each connection carries ttrpc.
//!
//! ```text
//! | connection, 4 bytes | length, 4 bytes | data |          big endian
//! ```
//!
//! A logical connection is a stream of bytes: a ttrpc message may be split over frames anywhere. The reader of the Go library
//! however takes a frame as a whole into the buffer that its caller offers, which has 4096 bytes at the beginning of a message
//! and then room for the rest of it; and it queues at most 256 frames. So a message is sent as its first 4096 bytes, and
//! everything else in a second frame.

use bytes::{BufMut as _, Bytes, BytesMut};
use criscope_wire::ttrpc::{self, FrameError, FrameMessage, HEADER_LEN, MAX_MESSAGE_LEN};

/// Logical connection of the service Plugin: requests of the runtime.
pub(crate) const PLUGIN_CONNECTION: u32 = 1;
/// Logical connection of the service Runtime: requests of the plugin.
pub(crate) const RUNTIME_CONNECTION: u32 = 2;

/// The size of a frame's header.
pub(crate) const FRAME_HEADER: usize = 8;
/// The longest frame.
pub(crate) const MAX_FRAME: usize = HEADER_LEN + MAX_MESSAGE_LEN;
/// The longest first frame of a message.
const MAX_FIRST_FRAME: usize = 4096;

/// The frames of a ttrpc message.
///
/// # Errors
/// If it is too long.
pub(crate) fn encode(
    connection: u32,
    stream: u32,
    message: &impl FrameMessage,
) -> Result<Bytes, FrameError> {
    let mut plain = BytesMut::new();
    ttrpc::encode(&mut plain, stream, message)?;
    let mut frames = BytesMut::with_capacity(plain.len() + 2 * FRAME_HEADER);
    let first = plain.split_to(plain.len().min(MAX_FIRST_FRAME));
    for piece in [first, plain] {
        if !piece.is_empty() {
            frames.put_u32(connection);
            frames.put_u32(piece.len() as u32);
            frames.put_slice(&piece);
        }
    }
    Ok(frames.freeze())
}

#[cfg(test)]
mod tests {
    use bytes::Buf as _;
    use criscope_wire::ttrpc::Request;

    use super::*;

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
            let sent = Request {
                service: "service".to_owned(),
                payload: vec![7; bytes],
                ..Request::default()
            };
            let frames = frames(encode(PLUGIN_CONNECTION, 3, &sent).expect("fits"));
            assert!(frames.len() <= 2 && frames[0].1.len() <= 4096, "{bytes}");
            let mut data = BytesMut::new();
            for (connection, piece) in frames {
                assert_eq!(connection, PLUGIN_CONNECTION);
                data.put_slice(&piece);
            }
            let got = ttrpc::decode::<Request>(&data).expect("valid");
            let got = got.expect("complete");
            assert_eq!((got.stream, got.length), (3, data.len()));
            assert!(got.message == sent);
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_not_sent() {
        let long = Request {
            payload: vec![7; MAX_MESSAGE_LEN],
            ..Request::default()
        };
        let refused = encode(PLUGIN_CONNECTION, 1, &long);
        assert!(matches!(refused, Err(FrameError::TooLong(_))));
    }
}
