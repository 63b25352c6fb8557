//! Fuzz target: arbitrary bytes as frames of either side.

use super::{Incoming, decode_incoming, decode_request, encode_request, frame_len};

/// Decodes bytes as frames, as the shim and the daemon do.
///
/// # Panics
/// If a decoded request does not survive encoding and decoding.
pub fn fuzz(mut bytes: &[u8]) {
    while let Ok(Some(len)) = frame_len(bytes) {
        let Some((frame, rest)) = bytes.split_at_checked(len) else {
            break;
        };
        bytes = rest;
        read(&frame[4..]);
    }
    // Also decode all bytes as one frame.
    read(bytes);
}

fn read(frame: &[u8]) {
    if let Ok((number, Ok(request))) = decode_request(frame) {
        let mut again = Vec::new();
        encode_request(number, &request, &mut again);
        assert_eq!(decode_request(&again[4..]), Ok((number, Ok(request))));
    }
    if let Ok(Incoming::Answer(number, _)) = decode_incoming(frame) {
        assert_ne!(number, 0);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_of_the_corpus_are_decoded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/shim");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).expect(folder) {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("a seed");
            super::fuzz(&bytes);
            for at in 0..bytes.len() {
                super::fuzz(&bytes[..at]);
                let mut flipped = bytes.clone();
                flipped[at] ^= 0xff;
                super::fuzz(&flipped);
            }
            files += 1;
        }
        assert!(files >= 3, "{files} files");
    }
}
