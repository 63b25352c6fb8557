//! Feeds bytes to the decoder of WebSocket frames, in pieces whose size is the first byte: any input must decode as it
//! does in one piece, and little may be buffered.

#![no_main]

use bytes::BytesMut;
use cri_streaming::websocket::{Decoder, Event, Violation};
use libfuzzer_sys::fuzz_target;

/// The content of all messages and control frames.
fn decode(bytes: &[u8], cut: usize) -> (Vec<u8>, Result<(), Violation>) {
    let (mut decoder, mut buffer, mut all) = (Decoder::default(), BytesMut::new(), Vec::new());
    for part in bytes.chunks(cut) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(Event::Data { bytes, .. } | Event::Ping(bytes))) => all.extend(bytes),
                Ok(Some(Event::Pong | Event::Close)) => all.push(0),
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
