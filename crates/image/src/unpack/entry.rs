//! One entry of an archive, with its extended headers applied.

use std::io;

/// The type of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Char,
    Block,
    Directory,
    Fifo,
}

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) path: Vec<u8>,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    /// The offset of its data in the archive.
    pub(crate) position: u64,
    /// Bytes of its data.
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, u32),
    pub(super) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Maximum length of a path that can be opened.
const MAX_PATH: usize = 4095;

impl Entry {
    /// Bytes it takes in memory.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        let xattrs = self.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| name.len() + value.len());
        self.path.len() + self.link.len() + xattrs.sum::<usize>()
    }

    /// Its path for errors: on one line, and truncated.
    pub(super) fn shown(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.path)
            .chars()
            .take(200)
            .collect();
        text.escape_debug().to_string()
    }
}

/// Splits a path relative to the root. A path with `..` is rejected, not normalised.
pub(crate) fn parts(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path.len() > MAX_PATH {
        return Err(bad("its path is longer than 4095 bytes"));
    }
    if path.contains(&0) {
        return Err(bad("its path has a zero byte"));
    }
    let parts: Vec<_> = path
        .split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    if parts.contains(&&b".."[..]) {
        return Err(bad("its path leads out of the layer with \"..\""));
    }
    Ok(parts)
}

/// An error about invalid contents of a layer.
pub(super) fn bad(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(parts(b"./a//b/").expect("path"), [b"a", b"b"]);
        assert_eq!(parts(b"/etc/x").expect("path"), [&b"etc"[..], b"x"]);
        assert!(parts(b"./").expect("path").is_empty());
        assert_eq!(parts(b"..a/b..").expect("path").len(), 2);
        for wrong in [&b"../x"[..], b"a/../../x", b"a/..", b"..", b"/..", b"a\0b"] {
            assert!(parts(wrong).is_err(), "{wrong:?}");
        }
        assert!(parts(&vec![b'a'; 5000]).is_err());
    }
}
