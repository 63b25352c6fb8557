//! Feeds bytes to the decoder of WebSocket frames, in pieces whose size is the first byte: any input must decode as it
//! does in one piece, and little may be buffered.

#![no_main]

use bytes::BytesMut;
use cri_streaming::websocket::{WebSocketDecoder, WebSocketEvent, WebSocketViolation};
use libfuzzer_sys::fuzz_target;

/// The content of all messages and control frames.
fn decode(bytes: &[u8], cut: usize) -> (Vec<u8>, Result<(), WebSocketViolation>) {
    let (mut decoder, mut buffer, mut all) =
        (WebSocketDecoder::default(), BytesMut::new(), Vec::new());
    for part in bytes.chunks(cut) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(WebSocketEvent::Data { bytes, .. } | WebSocketEvent::Ping(bytes))) => {
                    all.extend(bytes)
                }
                Ok(Some(WebSocketEvent::Pong | WebSocketEvent::Close)) => all.push(0),
                Ok(None) => break,
                Err(violation) => return (all, Err(violation)),
            }
        }
        assert!(buffer.len() < 140);
    }
    (all, Ok(()))
}

fuzz_target!(|input: &[u8]| {
    if let Some((cut, bytes)) = input.split_first() {
        let whole = decode(bytes, usize::MAX);
        assert_eq!(decode(bytes, usize::from(*cut) + 1), whole);
    }
});
