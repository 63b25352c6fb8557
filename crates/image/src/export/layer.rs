//! Writes an unpacked layer as an archive: the inverse of `unpack`. Entries are in the order of their names, so the archive
//! depends on the layer only. Its digest differs from the archive that the layer came from: the order of that one is not kept, nor
//! how its headers were written.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, major, minor, open, openat, readlinkat,
    statat,
};
use tar::EntryType;

use super::links::{HardLinks, MAX_NAMES, NAME_COST, too_many};
use super::tar::{TarEntry, end, pad};
use crate::rebase::{is_opaque, xattrs};
use crate::unpack::{DIR, MAX_DEPTH, OPAQUE_MARK, WHITEOUT, is_allowed, is_whiteout};

/// Metadata of aufs: it means nothing in the folder it is in, and implies the folder.
const AUFS_MARK: &[u8] = b".wh..wh.aufs";
/// Writes a layer.
pub(super) struct LayerWriter<'a, W> {
    to: &'a mut W,
    /// Directories that the layer has no entries for.
    implied: HashSet<Vec<u8>>,
    links: HardLinks,
    /// The path of the current directory, with a slash at the end unless it is the root.
    path: Vec<u8>,
    levels: Vec<Level>,
    /// Bytes left for the names in `levels`.
    room: usize,
}

/// A directory of the current path.
struct Level {
    dir: OwnedFd,
    /// The entries left to write, in reverse order.
    names: Vec<CString>,
    /// The length of the path of its parent.
    above: usize,
}

impl<'a, W: Write> LayerWriter<'a, W> {
    /// Opens the directory of a layer.
    pub(super) fn new(root: &Path, implied: Vec<String>, to: &'a mut W) -> io::Result<Self> {
        let mut writer = Self {
            to,
            implied: implied.into_iter().map(String::into_bytes).collect(),
            links: HardLinks::new(open(root, DIR, Mode::empty())?)?,
            path: Vec::new(),
            levels: Vec::new(),
            room: MAX_NAMES,
        };
        writer.enter(open(root, DIR, Mode::empty())?, 0)?;
        Ok(writer)
    }

    /// Writes all entries and the end.
    pub(super) fn run(mut self) -> io::Result<()> {
        self.root()?;
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.names.pop() else {
                self.path.truncate(level.above);
                self.levels.pop();
                continue;
            };
            self.room += name.as_bytes().len() + NAME_COST;
            self.entry(&name)?;
        }
        end(self.to)
    }

    fn enter(&mut self, dir: OwnedFd, above: usize) -> io::Result<()> {
        if self.levels.len() > MAX_DEPTH {
            let reason = format!("folders nested deeper than {MAX_DEPTH}");
            return Err(io::Error::other(reason));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let name = entry?.file_name().to_owned();
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            let cost = name.as_bytes().len() + NAME_COST;
            self.room = self.room.checked_sub(cost).ok_or_else(too_many)?;
            names.push(name);
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.levels.push(Level { dir, names, above });
        Ok(())
    }

    /// The root has an entry only if its attributes are not the default: otherwise it may have the time of a pull.
    fn root(&mut self) -> io::Result<()> {
        let dir = &self.levels[0].dir;
        let stat = fstat(dir)?;
        let (attributes, is_opaque) = (allowed(dir)?, is_opaque(dir)?);
        let owner = (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777);
        if owner != (0, 0, 0o755) || !attributes.is_empty() {
            entry_of_kind(EntryType::Directory, b"./", &stat, &attributes).write(self.to)?;
        }
        if is_opaque {
            TarEntry::new(EntryType::Regular, OPAQUE_MARK, 0).write(self.to)?;
        }
        Ok(())
    }

    fn entry(&mut self, name: &CString) -> io::Result<()> {
        let dir = &self.levels[self.levels.len() - 1].dir;
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let bytes = name.as_bytes();
        if bytes.starts_with(WHITEOUT) {
            return Err(io::Error::other(
                "a file with the name of a whiteout, which an archive cannot contain",
            ));
        }
        if is_whiteout(&stat) {
            let path = [&self.path, WHITEOUT, bytes].concat();
            return TarEntry::new(EntryType::Regular, &path, 0).write(self.to);
        }
        let path = [&self.path, bytes].concat();
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return self.directory(name, path, &stat);
        }
        if let Some(first) = self.links.earlier(stat.st_ino, &path)? {
            let mut entry = entry_of_kind(EntryType::Link, &path, &stat, &[]);
            entry.link = first;
            return entry.write(self.to);
        }
        match kind {
            FileType::RegularFile => self.file(name, &path, &stat),
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new())?.into_bytes();
                let mut entry = entry_of_kind(EntryType::Symlink, &path, &stat, &[]);
                entry.link = &target;
                entry.write(self.to)
            }
            FileType::CharacterDevice => node(EntryType::Char, &path, &stat).write(self.to),
            FileType::BlockDevice => node(EntryType::Block, &path, &stat).write(self.to),
            FileType::Fifo => entry_of_kind(EntryType::Fifo, &path, &stat, &[]).write(self.to),
            _ => Err(io::Error::other(format!(
                "{}: neither a file nor a folder, link, device or pipe",
                path.escape_ascii()
            ))),
        }
    }

    fn directory(&mut self, name: &CString, path: Vec<u8>, stat: &Stat) -> io::Result<()> {
        let dir = &self.levels[self.levels.len() - 1].dir;
        let dir = openat(dir, name, DIR, Mode::empty())?;
        let above = self.path.len();
        let is_implied = self.implied.contains(&path);
        self.path = path;
        self.path.push(b'/');
        if !is_implied {
            let attributes = allowed(&dir)?;
            entry_of_kind(EntryType::Directory, &self.path, stat, &attributes).write(self.to)?;
        }
        let is_opaque = is_opaque(&dir)?;
        self.enter(dir, above)?;
        // Something must remain of an implied directory. An entry of its own would replace the attributes that it has in lower layers.
        let is_lost = is_implied
            && self
                .levels
                .last()
                .is_some_and(|level| level.names.is_empty());
        let mark = match () {
            () if is_opaque => OPAQUE_MARK,
            () if is_lost => AUFS_MARK,
            () => return Ok(()),
        };
        let mark = [&self.path, mark].concat();
        TarEntry::new(EntryType::Regular, &mark, 0).write(self.to)
    }

    fn file(&mut self, name: &CString, path: &[u8], stat: &Stat) -> io::Result<()> {
        let dir = &self.levels[self.levels.len() - 1].dir;
        let flags = OFlags::RDONLY
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | OFlags::NOATIME;
        let file = openat(dir, name, flags, Mode::empty())?;
        let attributes = allowed(&file)?;
        let mut entry = entry_of_kind(EntryType::Regular, path, stat, &attributes);
        entry.size = u64::try_from(stat.st_size).unwrap_or(0);
        entry.write(self.to)?;
        let copied = io::copy(&mut File::from(file).take(entry.size), self.to)?;
        if copied < entry.size {
            let reason = format!("{}: has become shorter", path.escape_ascii());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        pad(self.to, entry.size)
    }
}

fn entry_of_kind<'a>(
    kind: EntryType,
    path: &'a [u8],
    stat: &Stat,
    xattrs: &'a [(Vec<u8>, Vec<u8>)],
) -> TarEntry<'a> {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    TarEntry {
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, nanos),
        xattrs,
        ..TarEntry::new(kind, path, stat.st_mode & 0o7777)
    }
}

fn node<'a>(kind: EntryType, path: &'a [u8], stat: &Stat) -> TarEntry<'a> {
    let device = (major(stat.st_rdev), minor(stat.st_rdev));
    TarEntry {
        device,
        ..entry_of_kind(kind, path, stat, &[])
    }
}

/// The extended attributes that an image may set, in the order of their names.
fn allowed(file: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = xattrs(file)?;
    all.retain(|(name, _)| is_allowed(name));
    all.sort_unstable();
    Ok(all)
}
