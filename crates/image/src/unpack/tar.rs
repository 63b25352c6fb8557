//! Reads a tar archive entry by entry. Headers are parsed with the `tar` crate, but its reader is not used, because it
//! reads extended headers of any size into memory.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use tar::Header;

use super::decompress::fill;
use super::entry::{Entry, Kind};
use super::number::{id, numeric, seconds, unsigned};
use super::pax::Pax;
use super::sparse::{MapBuilder, MapPlace, NEXT_MAP, OLD_MAP, OLD_SIZE, Region, read_map};
use crate::error::bad;

const BLOCK: usize = 512;
/// Where a header has the name of its format, and the version of that.
const MAGIC: std::ops::Range<usize> = 257..263;
const VERSION: std::ops::Range<usize> = 263..265;
/// Maximum bytes of all extended headers of one entry. Linux's limit on the extended attributes of a file is 64 KiB.
const MAX_EXTENSION: u64 = 1 << 20;

/// Iterates over the entries of an archive, and reads the contents of the current one.
#[derive(Debug)]
pub(crate) struct TarReader<R> {
    inner: R,
    /// Unread bytes of the current entry.
    left: u64,
    /// The padding of its last block.
    padding: u64,
    /// The offset in the archive.
    position: u64,
    /// Bytes left for extended headers of the next entry.
    room: u64,
    ended: bool,
}

/// The extended headers of the next entry.
#[derive(Default)]
struct Extensions {
    pax: Pax,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<R: Read> TarReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            left: 0,
            padding: 0,
            position: 0,
            room: 0,
            ended: false,
        }
    }

    /// Reads the next entry. Unread contents of the current one are skipped.
    pub(crate) fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        let mut count = 0;
        self.room = MAX_EXTENSION;
        while let Some(header) = self.header()? {
            let kind = header.entry_type();
            let size = unsigned(&header.as_old().size)?;
            if kind.is_pax_local_extensions() {
                extensions.pax = Pax::parse(&self.extension(size)?)?;
            } else if kind.is_gnu_longname() {
                extensions.path = Some(name(self.extension(size)?));
            } else if kind.is_gnu_longlink() {
                extensions.link = Some(name(self.extension(size)?));
            } else if kind.is_pax_global_extensions() {
                self.begin(size);
            } else {
                return self.entry(&header, extensions).map(Some);
            }
            count += 1;
            if count > 16 {
                return Err(bad("more than 16 headers for one entry"));
            }
        }
        Ok(None)
    }

    fn entry(&mut self, header: &Header, extensions: Extensions) -> io::Result<Entry> {
        let Extensions { pax, path, link } = extensions;
        // Like in Go, long names of GNU tar come before those of pax.
        let path = path.or(pax.path);
        let mut path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = match header.entry_type() {
            // Archives of the old format have no type for directories.
            kind if kind.is_file() && path.ends_with(b"/") => Kind::Directory,
            kind if kind.is_file() || kind.is_contiguous() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Symlink,
            kind if kind.is_hard_link() => Kind::HardLink,
            kind if kind.is_character_special() => Kind::Char,
            kind if kind.is_block_special() => Kind::Block,
            kind if kind.is_fifo() => Kind::Fifo,
            kind if kind.is_gnu_sparse() => Kind::File,
            kind => return Err(bad(format!("an entry of unknown type {}", kind.as_byte()))),
        };
        let old = header.as_old();
        // Like in Go's archive/tar, only files have contents, regardless of the size in other headers.
        let stored = match kind {
            Kind::File => pax.size.map_or_else(|| unsigned(&old.size), Ok)?,
            _ => 0,
        };
        let mut records = pax.sparse;
        let place = records.place()?;
        if place.is_some() {
            path = records.name().unwrap_or(path);
        }
        let (size, regions) = match place {
            Some(_) if kind != Kind::File => {
                return Err(bad("a sparse entry that is not a file"));
            }
            None if header.entry_type().is_gnu_sparse() => self.old_sparse(header, stored)?,
            None => {
                self.begin(stored);
                (stored, None)
            }
            Some(place) => {
                self.begin(stored);
                let size = records.size()?.unwrap_or(stored);
                let mut room = self.room;
                let mut builder = MapBuilder::new(&mut room);
                match place {
                    MapPlace::Records => records.regions(&mut builder)?,
                    MapPlace::Data => read_map(&mut builder, |block| self.read_exact(block))?,
                }
                (size, Some(builder.finish(size, self.left)?))
            }
        };
        let link = link.or(pax.link);
        let device = match kind {
            Kind::Char | Kind::Block => device(header)?,
            _ => (0, 0),
        };
        Ok(Entry {
            kind,
            path,
            link: link
                .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))
                .unwrap_or_default(),
            position: self.position,
            size,
            regions,
            mode: u32::try_from(numeric(&old.mode)? & 0o7777).unwrap_or_default(),
            uid: id(pax.uid.map_or_else(|| numeric(&old.uid), Ok)?)?,
            gid: id(pax.gid.map_or_else(|| numeric(&old.gid), Ok)?)?,
            mtime: pax.mtime.unwrap_or_else(|| (seconds(&old.mtime), 0)),
            device,
            xattrs: pax.xattrs,
        })
    }

    /// Begins a sparse file of the old format. Returns its size with the holes, and what the archive has of it.
    fn old_sparse(
        &mut self,
        header: &Header,
        stored: u64,
    ) -> io::Result<(u64, Option<Vec<Region>>)> {
        if header.as_gnu().is_none() {
            return Err(bad("a sparse file without a header of GNU tar"));
        }
        let bytes = header.as_bytes();
        let size = unsigned(&bytes[OLD_SIZE])?;
        let mut room = self.room;
        let mut builder = MapBuilder::new(&mut room);
        let mut goes_on = builder.add_block(&bytes[OLD_MAP])?;
        while goes_on {
            let mut block = Header::new_old();
            if !self.block(&mut block)? {
                return Err(cut());
            }
            goes_on = builder.add_block(&block.as_bytes()[NEXT_MAP])?;
            // A block costs memory only for its contents, but there may not be any number of them.
            builder.charge(BLOCK as u64)?;
        }
        // GNU tar writes a map for a file of holes, too.
        if size == 0 && builder.regions.is_empty() {
            return Err(bad("a sparse file without a map"));
        }
        self.begin(stored);
        Ok((size, Some(builder.finish(size, stored)?)))
    }

    /// Reads the next header. The archive ends with two blocks of zeros, or with its last byte.
    fn header(&mut self) -> io::Result<Option<Header>> {
        if self.ended {
            return Ok(None);
        }
        self.skip()?;
        let mut header = Header::new_old();
        if !self.block(&mut header)? {
            return Ok(None);
        }
        if header.as_bytes().iter().all(|b| *b == 0) {
            self.ended = true;
            let mut second = Header::new_old();
            if self.block(&mut second)? && second.as_bytes().iter().any(|b| *b != 0) {
                return Err(bad("something follows the end of the archive"));
            }
            return Ok(None);
        }
        check_sum(&header)?;
        let bytes = header.as_mut_bytes();
        if bytes[MAGIC] == *b"ustar\0" {
            // Go does not look at the version, without which the `tar` crate takes a header for one of the oldest format.
            bytes[VERSION].copy_from_slice(b"00");
        }
        Ok(Some(header))
    }

    fn block(&mut self, header: &mut Header) -> io::Result<bool> {
        let bytes = header.as_mut_bytes();
        match fill(&mut self.inner, bytes)? {
            0 => {
                self.ended = true;
                Ok(false)
            }
            BLOCK => {
                self.position += BLOCK as u64;
                Ok(true)
            }
            _ => Err(cut()),
        }
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        self.room = self.room.checked_sub(size).ok_or_else(|| {
            bad(format!(
                "headers of one entry with {size} bytes more, at most {MAX_EXTENSION} together"
            ))
        })?;
        self.begin(size);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self) -> io::Result<()> {
        let wanted = sum(self.left, self.padding)?;
        let skipped = io::copy(&mut (&mut self.inner).take(wanted), &mut io::sink())?;
        if skipped < wanted {
            return Err(cut());
        }
        self.position += wanted;
        (self.left, self.padding) = (0, 0);
        Ok(())
    }
}

impl<R: Read + Seek> TarReader<R> {
    /// Seeks over the contents of the current entry.
    pub(crate) fn seek_over(&mut self) -> io::Result<()> {
        let position = sum(self.position, sum(self.left, self.padding)?)?;
        self.inner.seek(SeekFrom::Start(position))?;
        self.position = position;
        (self.left, self.padding) = (0, 0);
        Ok(())
    }
}

/// Reads the contents of the current entry.
impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            return Ok(0);
        }
        let length = self.inner.read(&mut buffer[..most])?;
        if length == 0 {
            return Err(cut());
        }
        self.left -= length as u64;
        self.position += length as u64;
        Ok(length)
    }
}

/// The same, without copying them.
impl<R: BufRead> BufRead for TarReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let bytes = self.inner.fill_buf()?;
        if bytes.is_empty() {
            return Err(cut());
        }
        let most = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        Ok(&bytes[..most])
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.left -= bytes as u64;
        self.position += bytes as u64;
    }
}

fn sum(position: u64, more: u64) -> io::Result<u64> {
    let sum = position.checked_add(more);
    sum.ok_or_else(|| bad("an impossible size"))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive is cut off")
}

/// Verifies the sum of all bytes, with spaces in place of the checksum field.
fn check_sum(header: &Header) -> io::Result<()> {
    let bytes = header.as_bytes();
    let others = bytes[..148].iter().chain(&bytes[156..]);
    let sum: u32 = others.map(|b| u32::from(*b)).sum::<u32>() + 8 * 32;
    let claimed = header.cksum().map_err(|_| bad("not a tar archive"))?;
    if sum == claimed {
        return Ok(());
    }
    // Some old programs summed signed bytes.
    let others = bytes[..148].iter().chain(&bytes[156..]);
    let signed: i32 = others.map(|b| i32::from(b.cast_signed())).sum::<i32>() + 8 * 32;
    if i32::try_from(claimed) == Ok(signed) {
        return Ok(());
    }
    Err(bad("not a tar archive, or a damaged one"))
}

fn device(header: &Header) -> io::Result<(u32, u32)> {
    let gnu = header.as_gnu().map(|h| (&h.dev_major, &h.dev_minor));
    let ustar = header.as_ustar().map(|h| (&h.dev_major, &h.dev_minor));
    let Some((major, minor)) = gnu.or(ustar) else {
        return Ok((0, 0));
    };
    Ok((device_number(major)?, device_number(minor)?))
}

fn device_number(field: &[u8]) -> io::Result<u32> {
    let number = unsigned(field)?;
    u32::try_from(number).map_err(|_| bad(format!("device number {number}")))
}

/// Truncates a long name of GNU tar at its NUL byte.
fn name(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|b| *b == 0) {
        bytes.truncate(end);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType};

    use super::*;

    fn file(path: &str, data: &[u8]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o4644);
        header.set_uid(7);
        header.set_mtime(9);
        tar.append_data(&mut header, path, data).expect("entry");
        tar.into_inner().expect("archive")
    }

    #[test]
    fn names_longer_than_a_header_are_read() {
        let long = format!("a/{}/b", "x".repeat(300));
        let bytes = file(&long, b"data");
        let mut tar = TarReader::new(&bytes[..]);
        let entry = tar.next_entry().expect("read").expect("an entry");
        assert_eq!(entry.path, long.as_bytes());
        assert_eq!((entry.mode, entry.uid, entry.mtime), (0o4644, 7, (9, 0)));
        let mut data = String::new();
        tar.read_to_string(&mut data).expect("data");
        assert_eq!(data, "data");
        assert!(tar.next_entry().expect("read").is_none());
    }

    #[test]
    fn damaged_archives_are_rejected() {
        let good = file("a", &[1; 600]);
        let read_all = |bytes: &[u8]| -> io::Result<usize> {
            let mut tar = TarReader::new(bytes);
            let mut count = 0;
            while tar.next_entry()?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        assert_eq!(read_all(&good).expect("good"), 1);
        assert_eq!(read_all(&[]).expect("nothing"), 0);
        for cut in [100, 512, 700, 1200] {
            assert!(read_all(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut other = good.clone();
        other[0] = b'b';
        assert!(read_all(&other).is_err());
        assert!(read_all(&[b'x'; 2000]).is_err());
    }

    #[test]
    fn a_header_cannot_claim_all_memory() {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(8 << 30);
        header.set_cksum();
        let mut tar = TarReader::new(&header.as_bytes()[..]);
        let error = tar.next_entry().expect_err("too large").to_string();
        assert!(error.contains("at most"), "{error}");
    }

    #[test]
    fn the_size_of_a_link_is_ignored() {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Link);
        header.set_path("a").expect("path");
        header.set_link_name("b").expect("link");
        header.set_size(512);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(file("c", b""));
        let mut tar = TarReader::new(&bytes[..]);
        assert_eq!(tar.next_entry().expect("read").expect("link").link, b"b");
        assert_eq!(tar.next_entry().expect("read").expect("file").path, b"c");
    }
}
