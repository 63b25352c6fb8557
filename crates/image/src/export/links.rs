//! The hard links of a layer: which files have more than one name in it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use criscope_linux::walk::{Step, Walk, is_dir};
use rustix::io::Errno;

use crate::unpack::is_whiteout;

/// Maximum bytes of the names that are kept in memory for one layer.
pub(super) const MAX_NAMES: usize = 64 << 20;
/// Approximate memory of a name besides its bytes.
pub(super) const NAME_COST: usize = 64;

/// The inodes with several names, and the first name of each once it was seen.
#[derive(Debug)]
pub(super) struct HardLinks {
    inodes: Vec<u64>,
    first: HashMap<u64, Vec<u8>>,
    room: usize,
}

impl HardLinks {
    /// Reads the tree. The number of links of a file says too little: copies of the layer for other images have links to it.
    pub(super) fn new(root: OwnedFd) -> io::Result<Self> {
        let mut walk = Walk::new(root)?;
        let mut inodes = Vec::new();
        loop {
            match walk.step()? {
                Step::Found(name, stat) if is_dir(&stat) => {
                    if !walk.enter(&name)? {
                        return Err(Errno::STALE.into());
                    }
                }
                Step::Found(_, stat) if stat.st_nlink > 1 && !is_whiteout(&stat) => {
                    inodes.push(stat.st_ino);
                }
                Step::Found(..) | Step::Left => {}
                Step::Done => break,
            }
        }
        if walk.missed().is_some() {
            return Err(Errno::STALE.into());
        }
        inodes.sort_unstable();
        let mut several: Vec<_> = inodes
            .chunk_by(|a, b| a == b)
            .filter(|same| same.len() > 1)
            .map(|same| same[0])
            .collect();
        several.shrink_to_fit();
        Ok(Self {
            inodes: several,
            first: HashMap::new(),
            room: MAX_NAMES,
        })
    }

    /// The name that an earlier entry gave to this file. `None` for its first name, which is kept if there are others.
    pub(super) fn earlier(&mut self, inode: u64, path: &[u8]) -> io::Result<Option<&[u8]>> {
        if self.inodes.binary_search(&inode).is_err() {
            return Ok(None);
        }
        if self.first.contains_key(&inode) {
            return Ok(self.first.get(&inode).map(Vec::as_slice));
        }
        let cost = path.len() + NAME_COST;
        self.room = self.room.checked_sub(cost).ok_or_else(too_many)?;
        self.first.insert(inode, path.to_vec());
        Ok(None)
    }
}

/// More names than are kept.
pub(super) fn too_many() -> io::Error {
    let most = MAX_NAMES >> 20;
    io::Error::other(format!(
        "more than {most} MiB of names of files in one folder, or of hard links"
    ))
}
