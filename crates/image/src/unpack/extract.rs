//! Creates the files, directories and whiteouts of a layer.

use std::fs::File;
use std::io::{self, BufRead, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use criscope_linux::free_space::{CHECK_EVERY_BYTES, ENTRY_BYTES};
use rustix::fs::{
    AtFlags, Dev, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fsetxattr, futimens, linkat, makedev, mknodat, openat, symlinkat,
    utimensat,
};
use rustix::io::Errno;

use super::entry::{Entry, Kind, parts};
use super::job::{UnpackJob, UnpackSummary};
use super::tree::{OPAQUE, Tree, is, is_whiteout, status, text};
use crate::error::{At as _, Error, Result, bad, carry, check_space};

/// Prefix of the name of a whiteout.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
/// Name of the mark of an opaque directory.
pub(crate) const OPAQUE_MARK: &[u8] = b".wh..wh..opq";
/// Prefix of the other metadata of aufs, which is ignored.
const AUFS: &[u8] = b".wh..wh.";

/// Extracts entries into a tree.
pub(super) struct Extractor<'a> {
    job: &'a UnpackJob<'a>,
    tree: Tree,
    usage: UnpackSummary,
    unchecked: u64,
    /// Bytes of the holes of all sparse files.
    holes: u64,
}

impl<'a> Extractor<'a> {
    pub(super) fn new(job: &'a UnpackJob<'a>) -> Result<Self> {
        Ok(Self {
            job,
            tree: Tree::create(job.staging).at(job.staging)?,
            usage: UnpackSummary::default(),
            unchecked: CHECK_EVERY_BYTES,
            holes: 0,
        })
    }

    /// Extracts one entry, whose contents are read from `data`.
    pub(super) fn apply(&mut self, entry: &Entry, data: &mut impl BufRead) -> io::Result<()> {
        self.count(entry)?;
        let parts = parts(&entry.path)?;
        let Some((name, parents)) = parts.split_last() else {
            return self.root(entry);
        };
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return self.whiteout(name, hidden, parents);
        }
        let parent = self.tree.dir(parents)?;
        match entry.kind {
            Kind::Directory => self.directory(entry, &parent, name, &parts),
            Kind::File => self.file(entry, &parent, name, data),
            Kind::HardLink => self.hard_link(entry, &parent, name),
            Kind::Symlink => self.symlink(entry, &parent, name),
            Kind::Char => self.node(entry, &parent, name, FileType::CharacterDevice),
            Kind::Block => self.node(entry, &parent, name, FileType::BlockDevice),
            Kind::Fifo => self.node(entry, &parent, name, FileType::Fifo),
        }
    }

    /// Completes the tree, and returns its disk usage.
    pub(super) fn finish(mut self) -> io::Result<UnpackSummary> {
        self.tree.leave()?;
        self.usage.inodes += std::mem::take(&mut self.tree.made);
        self.usage.implied = self.tree.take_implied().filter_map(text).collect();
        Ok(self.usage)
    }

    fn count(&mut self, entry: &Entry) -> io::Result<()> {
        let limits = self.job.limits;
        let implied = std::mem::take(&mut self.tree.made);
        self.usage.inodes += 1 + implied;
        if self.usage.inodes > limits.max_entries {
            let what = format!("layer {}", self.job.diff_id);
            let reason = format!("more than {} entries", limits.max_entries);
            return Err(carry(Error::too_large(what, reason)));
        }
        self.count_holes(entry.holes())?;
        if entry.kind != Kind::HardLink {
            let stored = entry.size - entry.holes();
            let bytes = stored.div_ceil(ENTRY_BYTES).saturating_mul(ENTRY_BYTES);
            self.usage.bytes = self.usage.bytes.saturating_add(bytes);
        }
        // Each entry takes about one block.
        self.space(ENTRY_BYTES * (1 + implied))
    }

    /// Counts the holes of sparse files like bytes of the archive, because a copy of the file has them.
    fn count_holes(&mut self, bytes: u64) -> io::Result<()> {
        self.holes = self.holes.saturating_add(bytes);
        let limits = self.job.limits;
        let fetched = self.job.consumed.load(Ordering::Relaxed).max(1);
        let is_bomb =
            self.holes > limits.ratio_from_bytes && self.holes / fetched > limits.max_ratio;
        if is_bomb || self.holes > limits.max_unpacked_bytes {
            let what = format!("layer {}", self.job.diff_id);
            let reason = format!("sparse files with {} bytes of holes", self.holes);
            return Err(carry(Error::too_large(what, reason)));
        }
        Ok(())
    }

    /// Counts bytes to be written, and checks the free space periodically.
    fn space(&mut self, bytes: u64) -> io::Result<()> {
        self.unchecked += bytes;
        if self.unchecked < CHECK_EVERY_BYTES {
            return Ok(());
        }
        self.unchecked = 0;
        let (min_free, root) = (self.job.limits.min_free(), self.tree.root());
        let checked = check_space(min_free, &*root, self.job.staging, CHECK_EVERY_BYTES);
        checked.map_err(carry)
    }

    fn root(&mut self, entry: &Entry) -> io::Result<()> {
        if entry.kind != Kind::Directory {
            return Err(bad("the root of a layer must be a folder"));
        }
        let root = self.tree.dir(&[])?;
        self.own(entry, &root)?;
        self.tree.set_times(times(entry));
        Ok(())
    }

    fn whiteout(&mut self, name: &[u8], hidden: &[u8], parents: &[&[u8]]) -> io::Result<()> {
        let parent = self.tree.dir(parents)?;
        if name == OPAQUE_MARK {
            return Ok(fsetxattr(&*parent, OPAQUE, b"y", XattrFlags::empty())?);
        }
        if name.starts_with(AUFS) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(bad("a whiteout of nothing"));
        }
        // A whiteout hides files of lower layers, not of its own layer (OCI image-spec, "Whiteouts").
        match status(&*parent, hidden)? {
            Some(stat) if is(&stat, FileType::Directory) => self.tree.set_opaque(&parent, hidden),
            Some(_) => Ok(()),
            None => Ok(mknodat(
                &*parent,
                hidden,
                FileType::CharacterDevice,
                Mode::empty(),
                0,
            )?),
        }
    }

    fn directory(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &[u8],
        parts: &[&[u8]],
    ) -> io::Result<()> {
        let there = status(parent, name)?;
        let is_dir = there
            .as_ref()
            .is_some_and(|stat| is(stat, FileType::Directory));
        // The directory may have been created implicitly, for an entry below it, and have been replaced since.
        self.tree.make_explicit(&parts.join(&b'/'));
        if !is_dir {
            let opaque = there.as_ref().is_some_and(is_whiteout);
            self.tree.make_dir(parent, name, there.as_ref(), opaque)?;
        }
        let dir = self.tree.dir(parts)?;
        self.own(entry, &dir)?;
        self.tree.set_times(times(entry));
        Ok(())
    }

    fn file(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &[u8],
        data: &mut impl BufRead,
    ) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        // Nearly all names of a layer are new: one lookup for each.
        let file = match openat(parent, name, flags, mode) {
            Err(Errno::EXIST) => {
                self.remove_existing(parent, name)?;
                openat(parent, name, flags, mode)?
            }
            created => created?,
        };
        let mut file = File::from(file);
        match &entry.regions {
            None => self.write(&mut file, data)?,
            Some(regions) => {
                for region in regions {
                    file.seek(SeekFrom::Start(region.offset))?;
                    self.write(&mut file, &mut data.by_ref().take(region.length))?;
                }
                file.set_len(entry.size)?;
            }
        }
        let file = OwnedFd::from(file);
        self.own(entry, &file)?;
        Ok(futimens(&file, &times(entry))?)
    }

    fn write(&mut self, file: &mut File, data: &mut impl BufRead) -> io::Result<()> {
        loop {
            let bytes = data.fill_buf()?;
            let length = bytes.len();
            if length == 0 {
                return Ok(());
            }
            self.space(length as u64)?;
            file.write_all(bytes)?;
            data.consume(length);
        }
    }

    fn hard_link(&mut self, entry: &Entry, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let target = parts(&entry.link)?;
        let Some((last, parents)) = target.split_last() else {
            return Err(bad("a hard link to the root"));
        };
        let from = match self.tree.find(&parents.join(&b'/')) {
            Ok(from) => from,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(missing_target()),
            Err(error) => return Err(error.into()),
        };
        let stat = status(&from, last)?.ok_or_else(missing_target)?;
        if is(&stat, FileType::Directory) || is_whiteout(&stat) {
            return Err(bad("a hard link to a folder or a whiteout"));
        }
        let there = status(parent, name)?;
        if there.is_some_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        self.remove_existing(parent, name)?;
        // Without AT_SYMLINK_FOLLOW, this links the symbolic link itself.
        Ok(linkat(&from, *last, parent, name, AtFlags::empty())?)
    }

    fn symlink(&mut self, entry: &Entry, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        self.remove_existing(parent, name)?;
        symlinkat(&entry.link[..], parent, name)?;
        self.own_by_name(entry, parent, name)
    }

    fn node(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        name: &[u8],
        kind: FileType,
    ) -> io::Result<()> {
        self.remove_existing(parent, name)?;
        let (major, minor) = entry.device;
        let device: Dev = makedev(major, minor);
        mknodat(parent, name, kind, Mode::from_raw_mode(0o600), device)?;
        self.own_by_name(entry, parent, name)?;
        // After the owner, as for files. It was just created, so it is not a link.
        Ok(chmodat(
            parent,
            name,
            Mode::from_raw_mode(entry.mode),
            AtFlags::empty(),
        )?)
    }

    fn remove_existing(&mut self, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        match status(parent, name)? {
            Some(stat) => self.tree.clear(parent, name, &stat),
            None => Ok(()),
        }
    }

    /// Sets the owner, then the mode (a change of the owner clears set-user-ID), then extended attributes (and capabilities).
    fn own(&self, entry: &Entry, file: &OwnedFd) -> io::Result<()> {
        fchown(file, Some(uid(entry)), Some(gid(entry)))?;
        fchmod(file, Mode::from_raw_mode(entry.mode))?;
        for (name, value) in entry.xattrs.iter().filter(|(name, _)| is_allowed(name)) {
            match fsetxattr(file, &name[..], value, XattrFlags::empty()) {
                // The file system does not support them. containerd ignores this as well.
                Ok(()) | Err(Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn own_by_name(&self, entry: &Entry, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(parent, name, Some(uid(entry)), Some(gid(entry)), flags)?;
        Ok(utimensat(parent, name, &times(entry), flags)?)
    }
}

/// Returns whether an image may set this extended attribute. Excluded are those of overlayfs, which could expose files of
/// the host (`trusted.overlay.redirect`), and security labels, which the host sets.
pub(crate) fn is_allowed(name: &[u8]) -> bool {
    let user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    user || matches!(
        name,
        b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default"
    )
}

fn uid(entry: &Entry) -> Uid {
    Uid::from_raw(entry.uid)
}

fn gid(entry: &Entry) -> Gid {
    Gid::from_raw(entry.gid)
}

fn times(entry: &Entry) -> Timestamps {
    let (tv_sec, nanos) = entry.mtime;
    let time = Timespec {
        tv_sec,
        tv_nsec: nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn missing_target() -> io::Error {
    bad("a hard link to something that the layer does not have")
}
