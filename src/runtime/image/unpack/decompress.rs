//! Which compression a layer has is read from its first bytes: media types are often wrong.

use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// The largest window of zstd: 128 MiB, what `zstd --long` uses. More memory is not spent on one layer.
const WINDOW_LOG: u32 = 27;
const BUFFER: usize = 64 << 10;

/// gzip (of several members, too), zstd, or none.
pub(in crate::runtime::image) fn decompress<'a, R: Read + 'a>(
    mut input: R,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = [0; 6];
    let length = fill(&mut input, &mut magic)?;
    let magic = &magic[..length];
    let all = Cursor::new(magic.to_vec()).chain(input);
    Ok(match magic {
        [0x1f, 0x8b, ..] => {
            let buffered = BufReader::with_capacity(BUFFER, all);
            Box::new(MultiGzDecoder::new(buffered))
        }
        // A frame, or one to skip before it.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let buffered = BufReader::with_capacity(BUFFER, all);
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(WINDOW_LOG)?;
            Box::new(decoder)
        }
        b"BZh91A" | [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            let reason = "compressed with bzip2 or xz: only gzip and zstd are for layers";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        _ => Box::new(all),
    })
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

    /// One byte at a time, as a slow network.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = 1.min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }

    fn plain(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        decompress(Slow(bytes))?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn every_kind() {
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
    fn what_is_cut_off_is_an_error() {
        let whole = gzip(&[7; 5000]);
        assert!(plain(&whole[..whole.len() - 1]).is_err());
        let whole = zstd::encode_all(&[7; 5000][..], 1).expect("zstd");
        assert!(plain(&whole[..whole.len() - 1]).is_err());
    }
}
