//! Decodes frames without I/O, so that it can be fuzzed.

use bytes::{Buf, Bytes, BytesMut};

use super::frame::{MAX_CONTROL_LEN, WebSocketHead, WebSocketViolation, opcode, unmask};

/// An event from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketEvent {
    /// A piece of a message.
    Data {
        /// Set if the message is text. UTF-8 is not validated.
        text: bool,
        /// Set for the first piece of a message.
        first: bool,
        /// Set for the last piece of a message.
        last: bool,
        /// May be empty.
        bytes: Bytes,
    },
    /// Must be answered with a pong of the same content.
    Ping(Bytes),
    /// Needs no response.
    Pong,
    /// The client sends no more data.
    Close,
}

/// The payload of the current frame.
#[derive(Clone, Copy, Debug)]
struct FramePayload {
    head: WebSocketHead,
    /// Bytes that were already returned.
    done: u64,
    first: bool,
}

/// Decodes the frames of one connection. It needs at most the head of a frame, or a control frame, as a whole, so a buffer
/// of 139 bytes is sufficient.
#[derive(Debug, Default)]
pub struct WebSocketDecoder {
    payload: Option<FramePayload>,
    /// While a fragmented message is incomplete: `Some(true)` if it is text.
    message: Option<bool>,
    closed: bool,
}

impl WebSocketDecoder {
    /// Returns the next event, removed from the front of `buffer`; `None` if more bytes are needed. After a close frame,
    /// all input is discarded.
    ///
    /// # Errors
    /// If the client violated the protocol. The connection can then no longer be used.
    pub fn decode(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<WebSocketEvent>, WebSocketViolation> {
        if self.closed {
            buffer.clear();
            return Ok(None);
        }
        let payload = match self.payload {
            Some(payload) => payload,
            None => match self.begin(buffer)? {
                Some(payload) => payload,
                None => return Ok(None),
            },
        };
        if payload.head.is_control() {
            return self.control(payload, buffer);
        }
        Ok(self.data(payload, buffer))
    }

    /// Parses a head.
    fn begin(&mut self, buffer: &mut BytesMut) -> Result<Option<FramePayload>, WebSocketViolation> {
        let Some((head, length)) = WebSocketHead::parse(buffer)? else {
            return Ok(None);
        };
        let mut first = false;
        if !head.is_control() {
            first = head.opcode != opcode::CONTINUATION;
            if first == self.message.is_some() {
                return Err(WebSocketViolation::Order);
            }
            if first {
                self.message = Some(head.opcode == opcode::TEXT);
            }
        }
        buffer.advance(length);
        let payload = FramePayload {
            head,
            done: 0,
            first,
        };
        self.payload = Some(payload);
        Ok(Some(payload))
    }

    fn control(
        &mut self,
        payload: FramePayload,
        buffer: &mut BytesMut,
    ) -> Result<Option<WebSocketEvent>, WebSocketViolation> {
        let length = usize::try_from(payload.head.length).unwrap_or(MAX_CONTROL_LEN);
        if buffer.len() < length {
            return Ok(None);
        }
        self.payload = None;
        let mut bytes = buffer.split_to(length);
        unmask(&mut bytes, payload.head.mask, 0);
        Ok(Some(match payload.head.opcode {
            opcode::PING => WebSocketEvent::Ping(bytes.freeze()),
            opcode::PONG => WebSocketEvent::Pong,
            _ => {
                // A status code has two bytes; the reason after it is ignored.
                if length == 1 {
                    return Err(WebSocketViolation::Close);
                }
                self.closed = true;
                WebSocketEvent::Close
            }
        }))
    }

    fn data(&mut self, mut payload: FramePayload, buffer: &mut BytesMut) -> Option<WebSocketEvent> {
        let left = payload.head.length - payload.done;
        if left > 0 && buffer.is_empty() {
            return None;
        }
        let n = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let mut bytes = buffer.split_to(n);
        unmask(&mut bytes, payload.head.mask, payload.done);
        let text = self.message.unwrap_or_default();
        let first = payload.first;
        payload.done += n as u64;
        payload.first = false;
        let ended = payload.done == payload.head.length;
        self.payload = (!ended).then_some(payload);
        let last = ended && payload.head.last;
        if last {
            self.message = None;
        }
        Some(WebSocketEvent::Data {
            text,
            first,
            last,
            bytes: bytes.freeze(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a client.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [7, 0, 255, 9];
        let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).expect("short")];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
        frame
    }

    fn events(bytes: &[u8], cut: usize) -> Result<Vec<WebSocketEvent>, WebSocketViolation> {
        let (mut decoder, mut buffer, mut events) =
            (WebSocketDecoder::default(), BytesMut::new(), Vec::new());
        for part in bytes.chunks(cut) {
            buffer.extend_from_slice(part);
            while let Some(event) = decoder.decode(&mut buffer)? {
                events.push(event);
            }
        }
        assert!(buffer.len() < 140, "kept {}", buffer.len());
        Ok(events)
    }

    fn data(text: bool, first: bool, last: bool, bytes: &'static [u8]) -> WebSocketEvent {
        WebSocketEvent::Data {
            text,
            first,
            last,
            bytes: Bytes::from_static(bytes),
        }
    }

    #[test]
    fn messages_come_in_pieces_with_control_frames_between() {
        let bytes = [
            masked(0x02, b"ab"),
            masked(0x89, b"p"),
            masked(0x00, b""),
            masked(0x80, b"c"),
            masked(0x81, b"t"),
            masked(0x8a, b""),
            masked(0x88, b"\x03\xe8bye"),
            masked(0x82, b"never seen"),
        ]
        .concat();
        let expected = vec![
            data(false, true, false, b"ab"),
            WebSocketEvent::Ping(Bytes::from_static(b"p")),
            data(false, false, false, b""),
            data(false, false, true, b"c"),
            data(true, true, true, b"t"),
            WebSocketEvent::Pong,
            WebSocketEvent::Close,
        ];
        assert_eq!(events(&bytes, bytes.len()), Ok(expected.clone()));
        // Byte by byte there are more pieces, with the same content.
        let single = events(&bytes, 1).expect("valid");
        let joined = |events: &[WebSocketEvent]| -> Vec<u8> {
            let bytes = events.iter().filter_map(|event| match event {
                WebSocketEvent::Data { bytes, .. } => Some(bytes.to_vec()),
                _ => None,
            });
            bytes.flatten().collect()
        };
        assert_eq!(joined(&single), joined(&expected));
        assert_eq!(single.last(), Some(&WebSocketEvent::Close));
    }

    #[test]
    fn messages_must_not_overlap() {
        let order = Err(WebSocketViolation::Order);
        assert_eq!(events(&masked(0x80, b"x"), 99), order);
        let bytes = [masked(0x02, b"a"), masked(0x82, b"b")].concat();
        assert_eq!(events(&bytes, 99), order);
        assert_eq!(
            events(&masked(0x88, b"x"), 99),
            Err(WebSocketViolation::Close)
        );
    }

    #[test]
    fn an_empty_message_is_one_event() {
        let empty = vec![data(false, true, true, b"")];
        assert_eq!(events(&masked(0x82, b""), 1), Ok(empty));
    }
}
