//! The table of contents of an archive, for reading its files in any order.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Limits;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};
use crate::layer::{ArchiveSlice, LayerSource};
use crate::store::Disk;
use crate::unpack::{Entry, Kind, TarReader, decompress};

/// Maximum number of files in one archive.
const MAX_FILES: usize = 100_000;
const MAX_LINKS: usize = 8;
const BUFFER: usize = 256 << 10;
/// Free space is checked after this many bytes.
const SPACE_EVERY: u64 = 64 << 20;

/// An archive and its table of contents.
#[derive(Debug)]
pub(super) struct Archive {
    file: Arc<File>,
    path: PathBuf,
    files: HashMap<String, FileLocation>,
}

#[derive(Clone, Debug)]
enum FileLocation {
    At {
        offset: u64,
        size: u64,
    },
    /// Older versions of Docker save a shared layer once, and add links to it.
    Link(String),
}

impl Archive {
    /// Reads the table of contents. Compressed archives are first decompressed into an unnamed file. `path` is for errors.
    pub(super) fn open(disk: &Disk, mut file: File, path: &Path, limits: &Limits) -> Result<Self> {
        let mut magic = [0; 4];
        let is_compressed = match file.read_exact(&mut magic) {
            Ok(()) => matches!(magic, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd]),
            Err(_) => false,
        };
        file.seek(SeekFrom::Start(0)).at(path)?;
        if is_compressed {
            file = spool(disk, path, file, limits)?;
        }
        let files = contents(&file, path)?;
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            files,
        })
    }

    /// An uncompressed archive in memory.
    #[cfg(any(test, fuzzing))]
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("archive", flags).ok()?);
        file.write_all(bytes).ok()?;
        file.seek(SeekFrom::Start(0)).ok()?;
        let path = PathBuf::from("archive");
        Some(Self {
            files: contents(&file, &path).ok()?,
            file: Arc::new(file),
            path,
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    pub(super) fn what(&self) -> String {
        self.path.display().to_string()
    }

    fn locate(&self, name: &str) -> Result<(u64, u64)> {
        let mut name = normal(name);
        for _ in 0..MAX_LINKS {
            match self.files.get(&name) {
                Some(FileLocation::At { offset, size }) => return Ok((*offset, *size)),
                Some(FileLocation::Link(target)) => name.clone_from(target),
                None => break,
            }
        }
        let name: String = name.chars().take(200).collect();
        Err(Error::invalid(
            self.what(),
            format!("it has no file {name}"),
        ))
    }

    /// Reads a file of at most `most` bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let (offset, size) = self.locate(name)?;
        if size > most {
            let what = format!("{}: {}", self.what(), normal(name));
            let reason = format!("{size} bytes, at most {most}");
            return Err(Error::too_large(what, reason));
        }
        let size = usize::try_from(size).map_err(|_| Error::internal("a size"))?;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, offset).at(&self.path)?;
        Ok(bytes)
    }

    /// Returns the source of a layer.
    pub(super) fn layer(&self, name: &str, digest: Option<Digest>) -> Result<LayerSource> {
        let (offset, size) = self.locate(name)?;
        Ok(LayerSource::Archive(Arc::new(ArchiveSlice {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
            offset,
            size,
            digest,
        })))
    }
}

/// Normalises a path with `./` or `../`.
fn normal(name: &str) -> String {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn contents(file: &File, path: &Path) -> Result<HashMap<String, FileLocation>> {
    let length = file.metadata().at(path)?.len();
    let mut files = HashMap::new();
    let mut tar = TarReader::new(BufReader::new(file));
    while let Some(entry) = tar.next_entry().map_err(|e| invalid_archive(path, &e))? {
        tar.seek_over().map_err(|e| invalid_archive(path, &e))?;
        let Ok(name) = String::from_utf8(entry.path.clone()) else {
            continue;
        };
        let Some(location) = location(&entry, &name) else {
            continue;
        };
        if entry.position.saturating_add(entry.size) > length {
            return Err(invalid_archive(path, &"it is cut off"));
        }
        files.insert(normal(&name), location);
        if files.len() > MAX_FILES {
            let reason = format!("more than {MAX_FILES} files");
            return Err(invalid_archive(path, &reason));
        }
    }
    Ok(files)
}

fn invalid_archive(path: &Path, reason: &dyn Display) -> Error {
    Error::invalid(path.display().to_string(), reason.to_string())
}

fn location(entry: &Entry, name: &str) -> Option<FileLocation> {
    match entry.kind {
        // Layers are read in place, and such a file has no place for its holes.
        Kind::File if entry.regions.is_some() => None,
        Kind::File => Some(FileLocation::At {
            offset: entry.position,
            size: entry.size,
        }),
        // Relative to the root of the archive.
        Kind::HardLink => Some(FileLocation::Link(normal(&link_target(entry)?))),
        // Relative to the directory of the link.
        Kind::Symlink => {
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let target = link_target(entry)?;
            Some(FileLocation::Link(normal(&format!("{parent}/{target}"))))
        }
        _ => None,
    }
}

fn link_target(entry: &Entry) -> Option<String> {
    String::from_utf8(entry.link.clone()).ok()
}

/// Decompresses into an unlinked file, which the kernel removes when it is closed.
fn spool(disk: &Disk, path: &Path, file: File, limits: &Limits) -> Result<File> {
    let temporary = disk.temporary();
    let mut options = OpenOptions::new();
    options.create_new(true).read(true).write(true).mode(0o600);
    let mut target = options.open(&temporary).at(&temporary)?;
    std::fs::remove_file(&temporary).at(&temporary)?;
    let mut source = decompress(file, || Ok(())).map_err(|e| invalid_archive(path, &e))?;
    let mut buffer = vec![0; BUFFER];
    let (mut total, mut unchecked) = (0_u64, SPACE_EVERY);
    loop {
        let length = source
            .read(&mut buffer)
            .map_err(|e| invalid_archive(path, &e))?;
        if length == 0 {
            break;
        }
        total += length as u64;
        unchecked += length as u64;
        if total > limits.max_unpacked_bytes {
            let reason = format!(
                "more than {} bytes when decompressed",
                limits.max_unpacked_bytes
            );
            return Err(Error::too_large(path.display().to_string(), reason));
        }
        if unchecked >= SPACE_EVERY {
            unchecked = 0;
            disk.check_space(limits.min_free(), SPACE_EVERY)?;
        }
        target.write_all(&buffer[..length]).at(&temporary)?;
    }
    target.seek(SeekFrom::Start(0)).at(&temporary)?;
    Ok(target)
}
