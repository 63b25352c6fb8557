//! ttrpc (containerd/ttrpc): messages behind a header of ten bytes on a stream of bytes.
//!
//! ```text
//! | length, 4 bytes | stream, 4 bytes | type, 1 byte | flags, 1 byte | message |          big endian
//! ```

use bytes::{Buf as _, BufMut};
use prost::{DecodeError, Message};

pub use crate::messages::ttrpc::{KeyValue, Request, Response, Status};

/// The size of a header.
pub const HEADER_LEN: usize = 10;

/// The longest message without its header (containerd/ttrpc, `messageLengthMax`).
pub const MAX_MESSAGE_LEN: usize = 4 << 20;

/// The gRPC code for something that does not exist.
pub const CODE_NOT_FOUND: i32 = 5;

/// The gRPC code for an unknown method.
pub const CODE_UNIMPLEMENTED: i32 = 12;

/// A message that has a header of its own.
pub trait FrameMessage: Message + Default {
    /// The type in the header.
    const TYPE: u8;
}

impl FrameMessage for Request {
    const TYPE: u8 = 1;
}

impl FrameMessage for Response {
    const TYPE: u8 = 2;
}

impl Response {
    /// Returns the payload, or the status of a call that failed.
    ///
    /// # Errors
    /// The status.
    pub fn into_result(self) -> Result<Vec<u8>, Status> {
        match self.status {
            Some(status) if status.code != 0 => Err(status),
            _ => Ok(self.payload),
        }
    }
}

/// The reason why a frame cannot be sent, or is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is longer than [`MAX_MESSAGE_LEN`].
    #[error("a message of {0} bytes")]
    TooLong(usize),
    /// The message has another type, such as a request in place of a response.
    #[error("a message of type {found} instead of {expected}")]
    Type {
        /// The type in the header.
        found: u8,
        /// The type of the expected message.
        expected: u8,
    },
    /// The stream has an even number; clients use odd ones.
    #[error("stream {0}")]
    Stream(u32),
    /// The message cannot be decoded.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

/// Appends a message with its header.
///
/// # Errors
/// If the message is too long.
pub fn encode<M: FrameMessage>(
    out: &mut impl BufMut,
    stream: u32,
    message: &M,
) -> Result<(), FrameError> {
    let length = message.encoded_len();
    if length > MAX_MESSAGE_LEN {
        return Err(FrameError::TooLong(length));
    }
    out.put_u32(length as u32);
    out.put_u32(stream);
    out.put_slice(&[M::TYPE, 0]);
    out.put_slice(&message.encode_to_vec());
    Ok(())
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct Frame<M> {
    /// The number of its stream.
    pub stream: u32,
    /// The message.
    pub message: M,
    /// The length of the frame, with which it is removed from the received bytes.
    pub length: usize,
}

/// Reads the first frame of the received bytes; `None` if it is not complete.
///
/// # Errors
/// If the other end does not speak ttrpc, or sent another type of message.
pub fn decode<M: FrameMessage>(input: &[u8]) -> Result<Option<Frame<M>>, FrameError> {
    let Some((stream, content)) = split(input, M::TYPE)? else {
        return Ok(None);
    };
    Ok(Some(Frame {
        stream,
        message: M::decode(content)?,
        length: HEADER_LEN + content.len(),
    }))
}

/// Splits the first frame into its stream and its message.
fn split(input: &[u8], expected: u8) -> Result<Option<(u32, &[u8])>, FrameError> {
    let Some((mut header, rest)) = input.split_at_checked(HEADER_LEN) else {
        return Ok(None);
    };
    let (length, stream, found) = (header.get_u32() as usize, header.get_u32(), header.get_u8());
    if length > MAX_MESSAGE_LEN {
        return Err(FrameError::TooLong(length));
    }
    if found != expected {
        return Err(FrameError::Type { found, expected });
    }
    if stream % 2 == 0 {
        return Err(FrameError::Stream(stream));
    }
    Ok(rest.get(..length).map(|content| (stream, content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> Request {
        Request {
            service: "containerd.task.v2.Task".to_owned(),
            method: "Wait".to_owned(),
            payload: vec![7; bytes],
            metadata: vec![KeyValue {
                key: "containerd-namespace-ttrpc".to_owned(),
                value: "k8s.io".to_owned(),
            }],
            ..Request::default()
        }
    }

    #[test]
    fn messages_arrive_whole_however_they_are_split() {
        let sent = request(300);
        let mut bytes = Vec::new();
        encode(&mut bytes, 5, &sent).expect("fits");
        // The form that the Go library sends: the length counts the message alone.
        assert_eq!(
            bytes[..4],
            ((bytes.len() - HEADER_LEN) as u32).to_be_bytes()
        );
        for length in 0..bytes.len() {
            let part = decode::<Request>(&bytes[..length]).expect("ttrpc");
            assert!(part.is_none(), "{length}");
        }
        let length = bytes.len();
        bytes.extend_from_slice(&bytes.clone());
        let whole = decode::<Request>(&bytes).expect("ttrpc").expect("whole");
        assert_eq!((whole.stream, whole.length), (5, length));
        assert!(whole.message == sent);
    }

    #[test]
    fn messages_that_are_too_long_or_out_of_place_are_refused() {
        let long = encode(&mut Vec::new(), 1, &request(MAX_MESSAGE_LEN));
        assert!(matches!(long, Err(FrameError::TooLong(_))), "{long:?}");
        for (bytes, text) in [
            (&[0xff, 0, 0, 0, 0, 0, 0, 1, 2, 0][..], "4278190080 bytes"),
            (&[0, 0, 0, 0, 0, 0, 0, 1, 1, 0], "type 1 instead of 2"),
            (&[0, 0, 0, 0, 0, 0, 0, 2, 2, 0], "stream 2"),
            (&[0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0xff], "varint"),
        ] {
            let refused = decode::<Response>(bytes);
            let error = refused.err().expect(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_status_of_zero_is_no_error() {
        let status = |code| {
            Some(Status {
                code,
                message: String::new(),
            })
        };
        let response = |code| Response {
            status: status(code),
            payload: vec![7],
        };
        assert!(
            response(0)
                .into_result()
                .is_ok_and(|payload| payload == [7])
        );
        assert!(
            response(5)
                .into_result()
                .is_err_and(|status| status.code == CODE_NOT_FOUND)
        );
    }
}
