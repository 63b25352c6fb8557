//! Terminal sizes: a sequence of JSON objects, which may be split at any byte.

use serde::Deserialize;

use crate::runtime::TerminalSize;

/// Maximum size of an object, in bytes; real ones have about 30. Larger ones are discarded.
const MAX_OBJECT_LEN: usize = 1024;

/// A size as sent by clients: `{"Width":80,"Height":24}`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSizeJson {
    #[serde(alias = "width")]
    width: u16,
    #[serde(alias = "height")]
    height: u16,
}

/// Reassembles the objects.
#[derive(Debug, Default)]
pub(super) struct SizeDecoder {
    rest: Vec<u8>,
    /// Set after the first input that is not a size: what follows is not trusted.
    broken: bool,
}

impl SizeDecoder {
    /// Returns the last size that these bytes complete, if any; earlier ones are obsolete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<TerminalSize> {
        if self.broken {
            return None;
        }
        self.rest.extend_from_slice(bytes);
        let mut last = None;
        let mut stream =
            serde_json::Deserializer::from_slice(&self.rest).into_iter::<TerminalSizeJson>();
        loop {
            match stream.next() {
                Some(Ok(
                    TerminalSizeJson { width: 0, .. } | TerminalSizeJson { height: 0, .. },
                )) => {}
                Some(Ok(TerminalSizeJson { width, height })) => {
                    last = Some(TerminalSize { width, height })
                }
                Some(Err(error)) if !error.is_eof() => {
                    self.broken = true;
                    break;
                }
                Some(Err(_)) | None => break,
            }
        }
        let used = stream.byte_offset();
        self.rest.drain(..used);
        if self.rest.len() > MAX_OBJECT_LEN {
            self.broken = true;
        }
        if self.broken {
            self.rest = Vec::new();
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u16, height: u16) -> Option<TerminalSize> {
        Some(TerminalSize { width, height })
    }

    #[test]
    fn objects_may_be_split_and_joined() {
        let mut sizes = SizeDecoder::default();
        assert_eq!(sizes.feed(b"{\"Width\":80,\"He"), None);
        assert_eq!(sizes.feed(b"ight\":24}\n{\"Width\":1"), size(80, 24));
        assert_eq!(
            sizes.feed(b"00,\"Height\":50}{\"Width\":120,\"Height\":60}"),
            size(120, 60)
        );
        assert_eq!(sizes.feed(b""), None);
        assert_eq!(sizes.feed(b"{\"Width\":0,\"Height\":5}"), None, "too small");
        assert_eq!(sizes.feed(b"{\"Width\":9,\"Height\":5}\n"), size(9, 5));
        for byte in b"{\"Width\":7,\"Height\":8" {
            assert_eq!(sizes.feed(&[*byte]), None);
        }
        assert_eq!(sizes.feed(b"}"), size(7, 8));
    }

    #[test]
    fn invalid_input_ends_the_stream_of_sizes() {
        for wrong in [
            &b"[1]"[..],
            b"{\"Width\":70000,\"Height\":1}",
            b"\xff",
            b"x",
        ] {
            let mut sizes = SizeDecoder::default();
            assert_eq!(sizes.feed(wrong), None);
            assert_eq!(sizes.feed(b"{\"Width\":9,\"Height\":5}"), None);
        }
        let mut sizes = SizeDecoder::default();
        sizes.feed(b"{\"Width\":");
        for _ in 0..100 {
            sizes.feed(&[b' '; 100]);
        }
        assert!(sizes.broken && sizes.rest.capacity() == 0);
    }
}
