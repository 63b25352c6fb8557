//! The merged view of a stack of layers, as overlayfs would show it, without mounting it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, Stat, fgetxattr, flistxattr, open, openat, readlinkat};
use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{At as _, Result};
use crate::store::ContentStore;
use crate::unpack::{DIR, MAX_LINKS, OPAQUE, is, is_whiteout, status};

/// Limit on the value of an extended attribute (`XATTR_SIZE_MAX`), and on the list of names.
const MAX_XATTR: usize = 64 << 10;

/// The components of a path.
pub(super) type Parts = Vec<Vec<u8>>;

/// The roots of the layers, topmost first.
#[derive(Debug)]
pub(super) struct LowerLayers(Vec<OwnedFd>);

/// A file in the merged view.
#[derive(Debug)]
pub(super) struct LowerEntry {
    pub(super) stat: Stat,
    /// The directory in the layer that provides it.
    pub(super) parent: OwnedFd,
}

impl LowerLayers {
    /// Opens layers, which are given from the base up.
    pub(super) fn open(store: &ContentStore, stack: &[Digest]) -> Result<Self> {
        let roots = stack.iter().rev().map(|id| {
            let path = store.disk.layer(id).join("fs");
            open(&path, DIR, Mode::empty()).at(&path)
        });
        Ok(Self(roots.collect::<Result<_>>()?))
    }

    /// Returns whether the implied directories of a layer are already right: owned by root, mode 0755, and not reached
    /// through links.
    pub(super) fn fits(&self, implied: &[String]) -> io::Result<bool> {
        for implied in implied {
            let parts = split(implied.as_bytes());
            let (real, found) = self.resolve(&parts)?;
            let Some(found) = found else {
                continue;
            };
            let stat = &found.stat;
            let is_plain = (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) == (0, 0, 0o755);
            if real != parts || !is_plain {
                return Ok(false);
            }
            let dir = openat(&found.parent, &real[real.len() - 1][..], DIR, Mode::empty())?;
            if !xattrs(&dir)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Resolves the links of a path. Returns the real path, and the directory there if it exists.
    pub(super) fn resolve(&self, parts: &[Vec<u8>]) -> io::Result<(Parts, Option<LowerEntry>)> {
        let mut todo: VecDeque<Vec<u8>> = parts.iter().cloned().collect();
        let mut real = Parts::new();
        let mut links = 0;
        let mut found = None;
        while let Some(part) = todo.pop_front() {
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    real.pop();
                    continue;
                }
                _ => real.push(part),
            }
            found = self.look_up(&real)?;
            let Some(there) = &found else {
                continue;
            };
            match FileType::from_raw_mode(there.stat.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let name = real.pop().unwrap_or_default();
                    let target = readlinkat(&there.parent, &name[..], Vec::new())?.into_bytes();
                    if target.starts_with(b"/") {
                        real.clear();
                    }
                    for part in target.rsplit(|b| *b == b'/') {
                        todo.push_front(part.to_vec());
                    }
                    found = None;
                }
                // A directory replaces it.
                _ => found = None,
            }
        }
        if found.is_none() {
            // The last component may have been `..`, or a link to an existing directory.
            found = self.look_up(&real)?;
            found = found.filter(|found| is(&found.stat, FileType::Directory));
        }
        Ok((real, found))
    }

    /// Looks up a path in which only the last component may be a link.
    fn look_up(&self, real: &[Vec<u8>]) -> io::Result<Option<LowerEntry>> {
        let Some((last, parents)) = real.split_last() else {
            return Ok(None);
        };
        'layers: for root in &self.0 {
            let mut dir = openat(root, ".", DIR, Mode::empty())?;
            let mut hides = is_opaque(&dir)?;
            for part in parents {
                match status(&dir, part)? {
                    Some(stat) if is(&stat, FileType::Directory) => {
                        dir = openat(&dir, &part[..], DIR, Mode::empty())?;
                        hides |= is_opaque(&dir)?;
                    }
                    // A whiteout or a file hides lower layers.
                    Some(_) => return Ok(None),
                    None if hides => return Ok(None),
                    None => continue 'layers,
                }
            }
            match status(&dir, last)? {
                Some(stat) if is_whiteout(&stat) => return Ok(None),
                Some(stat) => return Ok(Some(LowerEntry { stat, parent: dir })),
                None if hides => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }
}

pub(super) fn split(path: &[u8]) -> Parts {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
    parts.map(<[u8]>::to_vec).collect()
}

/// Returns whether a directory hides those of lower layers.
pub(crate) fn is_opaque(dir: impl AsFd) -> io::Result<bool> {
    let mut value = [0; 1];
    match fgetxattr(dir, OPAQUE, &mut value) {
        Ok(length) => Ok(length == 1 && value == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Extended attributes of a file, without those of overlayfs.
pub(crate) fn xattrs(file: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; MAX_XATTR];
    let length = match flistxattr(&file, &mut names) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let mut all = Vec::new();
    for name in names[..length]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
    {
        // Security labels are set by the host.
        if name.starts_with(b"trusted.overlay.") || name == b"security.selinux" {
            continue;
        }
        let mut value = vec![0; MAX_XATTR];
        let length = fgetxattr(&file, name, &mut value)?;
        value.truncate(length);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}
