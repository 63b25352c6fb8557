//! One entry of an archive, with its extended headers applied.

use std::io;

use super::sparse::Region;
use crate::error::bad;

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
    /// Bytes of its data, with the holes of a sparse file.
    pub(crate) size: u64,
    /// The parts of a sparse file that the archive has.
    pub(crate) regions: Option<Vec<Region>>,
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
        let regions = self.regions.as_ref().map_or(0, Vec::len) * size_of::<Region>();
        self.path.len() + self.link.len() + xattrs.sum::<usize>() + regions
    }

    /// Bytes of the holes of a sparse file.
    pub(super) fn holes(&self) -> u64 {
        let Some(regions) = &self.regions else {
            return 0;
        };
        let stored: u64 = regions.iter().map(|region| region.length).sum();
        self.size.saturating_sub(stored)
    }

    /// The path for errors: on one line, and truncated.
    pub(super) fn shown(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.path)
            .chars()
            .take(200)
            .collect();
        text.escape_debug().to_string()
    }
}

/// Splits a path relative to the root. `..` is resolved in the path alone, without the links of the layer, as containerd does. A path that
/// begins at the root with `/` or `./` stays there; one that climbs above it is rejected, as in Docker.
pub(crate) fn parts(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path.len() > MAX_PATH {
        return Err(bad("its path is longer than 4095 bytes"));
    }
    if path.contains(&0) {
        return Err(bad("its path has a zero byte"));
    }
    let is_rooted = path.starts_with(b"/") || path.starts_with(b"./");
    let mut parts = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.pop().is_none() && !is_rooted => {
                return Err(bad("its path leads out of the layer with \"..\""));
            }
            b".." => {}
            part => parts.push(part),
        }
    }
    Ok(parts)
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
        for (path, resolved) in [
            (&b"opt/x/../y"[..], &b"opt/y"[..]),
            (b"./../ext/a.jar", b"ext/a.jar"),
            (b"/../../a", b"a"),
            (b"a/b/../../c/./d/..", b"c"),
            (b"./a/../../../b", b"b"),
            (b"a/..", b""),
            (b"/..", b""),
        ] {
            assert_eq!(parts(path).expect("path").join(&b'/'), resolved);
        }
        for wrong in [&b"../x"[..], b"a/../../x", b"..", b"..//", b"a\0b"] {
            assert!(parts(wrong).is_err(), "{wrong:?}");
        }
        assert!(parts(&vec![b'a'; 5000]).is_err());
    }
}
