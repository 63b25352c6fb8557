//! Decompression. The format is detected from the first bytes, because media types are often wrong.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

/// Maximum window of zstd: 128 MiB, as with `zstd --long`.
const LARGE_LOG: u32 = 27;
/// Windows up to 8 MiB need no permit: every decoder supports them (RFC 8878, 3.1.1.1.2), and tools that create layers use
/// no larger ones by default.
const SMALL_LOG: u32 = 23;
const BUFFER: usize = 64 << 10;

/// Decompresses gzip, including several members, and zstd; other input is returned unchanged. `large_window` is called
/// before a large window of zstd is allocated; its permit is kept until the reader is dropped.
pub(crate) fn decompress<R: Read, T>(
    mut input: R,
    large_window: impl FnOnce() -> io::Result<T>,
) -> io::Result<Decompressed<R, T>> {
    let mut magic = [0; FRAME_HEADER];
    let length = fill(&mut input, &mut magic)?;
    let magic = &magic[..length];
    let all = Cursor::new(magic.to_vec()).chain(input);
    Ok(match magic {
        [0x1f, 0x8b, ..] => {
            let buffered = BufReader::with_capacity(BUFFER, all);
            Decompressed::Gzip(Box::new(MultiGzDecoder::new(buffered)))
        }
        // A frame, or a skippable frame before it.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let buffered = BufReader::with_capacity(BUFFER, all);
            let mut decoder = Decoder::with_buffer(buffered)?;
            if is_small(magic) {
                decoder.window_log_max(SMALL_LOG)?;
                return Ok(Decompressed::Zstd(decoder, None));
            }
            let permit = large_window()?;
            decoder.window_log_max(LARGE_LOG)?;
            Decompressed::Zstd(decoder, Some(permit))
        }
        [b'B', b'Z', b'h', b'9', b'1', b'A', ..] | [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let reason = "compressed with bzip2 or xz: only gzip and zstd are for layers";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        _ => Decompressed::Plain(all),
    })
}

/// The first bytes, and the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// See [`decompress`].
pub(crate) enum Decompressed<R, T> {
    Gzip(Box<MultiGzDecoder<BufReader<Whole<R>>>>),
    /// With the permit for its window.
    Zstd(Decoder<'static, BufReader<Whole<R>>>, Option<T>),
    Plain(Whole<R>),
}

impl<R: Read, T> Read for Decompressed<R, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder, _) => decoder.read(buffer),
            Self::Plain(plain) => plain.read(buffer),
        }
    }
}

/// Number of bytes of a frame that determine its window size.
const FRAME_HEADER: usize = 18;

/// Returns whether the window of the first frame is small (RFC 8878, 3.1.1.1). Unknown after a skippable frame.
fn is_small(frame: &[u8]) -> bool {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = frame else {
        return false;
    };
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let Some(window) = rest.first() else {
            return false;
        };
        let base = 1_u64 << (10 + (window >> 3));
        return base + base / 8 * u64::from(window & 7) <= 1 << SMALL_LOG;
    }
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 => 1,
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let Some(field) = rest.get(dictionary..dictionary + size) else {
        return false;
    };
    let content = field
        .iter()
        .rev()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    content <= 1 << SMALL_LOG
}

/// Reads until the buffer is full or the input ends.
pub(super) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("gzip");
        encoder.finish().expect("gzip")
    }

    /// Returns one byte at a time, like a slow network.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = 1.min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }

    fn plain(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        decompress(Slow(bytes), || Ok(()))?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn every_format_is_decompressed() {
        let mut members = gzip(b"one ");
        members.extend(gzip(b"two"));
        assert_eq!(plain(&members).expect("gzip"), "one two");
        let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9];
        frames.extend(zstd::encode_all(&b"one "[..], 1).expect("zstd"));
        frames.extend(zstd::encode_all(&b"two"[..], 1).expect("zstd"));
        assert_eq!(plain(&frames).expect("zstd"), "one two");
        assert_eq!(plain(b"just text").expect("plain"), "just text");
        assert_eq!(plain(b"").expect("nothing"), "");
        assert!(plain(b"\xfd7zXZ\0...").is_err());
    }

    #[test]
    fn a_large_window_needs_a_permit() {
        // Without the content size, so that the window size matters.
        let compress = |log: u32| {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("zstd");
            encoder.window_log(log).expect("log");
            encoder.write_all(b"text").expect("zstd");
            encoder.finish().expect("zstd")
        };
        for (log, is_large) in [
            (20, false),
            (SMALL_LOG, false),
            (24, true),
            (LARGE_LOG, true),
        ] {
            let bytes = compress(log);
            let mut asked = false;
            let mut text = String::new();
            decompress(&bytes[..], || {
                asked = true;
                Ok(())
            })
            .expect("zstd")
            .read_to_string(&mut text)
            .expect("read");
            assert_eq!((asked, text.as_str()), (is_large, "text"), "{log}");
            let refused = decompress(&bytes[..], || Err::<(), _>(io::Error::other("no")));
            assert_eq!(refused.is_err(), is_large);
        }
        assert!(plain(&compress(28)).is_err());
        // The limit of the first frame also applies to later ones.
        let later = [compress(20), compress(27)].concat();
        assert!(plain(&later).is_err());
    }

    #[test]
    fn truncated_input_is_an_error() {
        let whole = gzip(&[7; 5000]);
        assert!(plain(&whole[..whole.len() - 1]).is_err());
        let whole = zstd::encode_all(&[7; 5000][..], 1).expect("zstd");
        assert!(plain(&whole[..whole.len() - 1]).is_err());
    }
}
