//! Writes the headers of a tar archive: ustar, with extended headers of pax for what does not fit. The same entry always has
//! the same bytes.

use std::io::{self, Write};

use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// The longest name in a header of ustar without its prefix.
const MAX_NAME: usize = 100;
/// The largest numbers of seven and eleven octal digits.
const MAX_ID: u32 = 0o7_777_777;
const MAX_LONG: u64 = 0o77_777_777_777;
const XATTR: &[u8] = b"SCHILY.xattr.";

/// An entry of an archive.
#[derive(Debug)]
pub(super) struct TarEntry<'a> {
    pub(super) kind: EntryType,
    pub(super) path: &'a [u8],
    /// The target of a link.
    pub(super) link: &'a [u8],
    /// Bytes of its data, which the caller writes, and then [`pad`].
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since the Unix epoch, and nanoseconds.
    pub(super) mtime: (i64, u32),
    /// Major and minor number.
    pub(super) device: (u32, u32),
    pub(super) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl<'a> TarEntry<'a> {
    /// A file or directory of root from 1970.
    pub(super) fn new(kind: EntryType, path: &'a [u8], mode: u32) -> Self {
        Self {
            kind,
            path,
            link: b"",
            size: 0,
            mode,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            device: (0, 0),
            xattrs: &[],
        }
    }

    /// Writes its headers.
    ///
    /// # Errors
    /// Those of the writer; a device number that a header has no room for.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let records = self.records();
        if !records.is_empty() {
            let mut extended = Self::new(EntryType::XHeader, b"PaxHeaders.0/entry", 0o644);
            extended.size = records.len() as u64;
            to.write_all(extended.header()?.as_bytes())?;
            to.write_all(&records)?;
            pad(to, extended.size)?;
        }
        to.write_all(self.header()?.as_bytes())
    }

    fn header(&self) -> io::Result<Header> {
        let mut header = Header::new_ustar();
        let (path, link) = (cut_name(self.path), cut_name(self.link));
        if let Some(ustar) = header.as_ustar_mut() {
            ustar.name[..path.len()].copy_from_slice(path);
            ustar.linkname[..link.len()].copy_from_slice(link);
        }
        header.set_entry_type(self.kind);
        header.set_mode(self.mode);
        header.set_uid(u64::from(in_range(self.uid, MAX_ID)));
        header.set_gid(u64::from(in_range(self.gid, MAX_ID)));
        header.set_size(in_range(self.size, MAX_LONG));
        let seconds = u64::try_from(self.mtime.0).unwrap_or(0);
        header.set_mtime(in_range(seconds, MAX_LONG));
        let (major, minor) = self.device;
        header.set_device_major(in_range(major, MAX_ID))?;
        header.set_device_minor(in_range(minor, MAX_ID))?;
        header.set_cksum();
        Ok(header)
    }

    /// The records of the extended header; none if everything fits into the header.
    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        if self.path.len() > MAX_NAME {
            record(&mut records, &[b"path"], self.path);
        }
        if self.link.len() > MAX_NAME {
            record(&mut records, &[b"linkpath"], self.link);
        }
        if self.size > MAX_LONG {
            record(&mut records, &[b"size"], self.size.to_string().as_bytes());
        }
        for (key, id) in [(b"uid", self.uid), (b"gid", self.gid)] {
            if id > MAX_ID {
                record(&mut records, &[key], id.to_string().as_bytes());
            }
        }
        let (seconds, nanos) = self.mtime;
        let fits = u64::try_from(seconds).is_ok_and(|seconds| seconds <= MAX_LONG);
        if nanos > 0 || !fits {
            record(&mut records, &[b"mtime"], time(seconds, nanos).as_bytes());
        }
        for (name, value) in self.xattrs {
            record(&mut records, &[XATTR, name], value);
        }
        records
    }
}

/// 0 for a number that stands in an extended header.
fn in_range<T: Copy + PartialOrd + Default>(number: T, most: T) -> T {
    if number <= most { number } else { T::default() }
}

/// Appends `LENGTH KEY=VALUE\n`. The length includes its own digits.
fn record(records: &mut Vec<u8>, key: &[&[u8]], value: &[u8]) {
    let key = key.concat();
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length += 1;
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(&key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// The part of a name that fits into the header.
fn cut_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(MAX_NAME)]
}

/// Seconds with a fraction, as pax writes them: a negative time has a negative fraction.
fn time(seconds: i64, nanos: u32) -> String {
    if nanos == 0 {
        return seconds.to_string();
    }
    let (sign, whole, nanos) = if seconds < 0 {
        ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanos)
    } else {
        ("", seconds.unsigned_abs(), nanos)
    };
    let text = format!("{sign}{whole}.{nanos:09}");
    text.trim_end_matches('0').to_owned()
}

/// Fills the last block of an entry's data.
pub(super) fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let zeros = [0; BLOCK as usize];
    let missing = (BLOCK - size % BLOCK) % BLOCK;
    to.write_all(&zeros[..usize::try_from(missing).unwrap_or(0)])
}

/// Writes the end of an archive.
pub(super) fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 2 * BLOCK as usize])
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::unpack::{Kind, TarReader};

    #[test]
    fn what_does_not_fit_into_a_header_is_read_again() {
        let long = [b"d/".repeat(80), b"\xff".to_vec()].concat();
        let xattrs = [
            (b"user.a".to_vec(), b"line\nline=\0".to_vec()),
            (b"security.capability".to_vec(), vec![1; 95]),
        ];
        for mtime in [
            (0, 0),
            (7, 5),
            (1, 500_000_000),
            (-1, 500_000_000),
            (-3, 1),
            (-9, 0),
            (1 << 40, 0),
        ] {
            let entry = TarEntry {
                link: &long,
                uid: 4_000_000_000,
                gid: MAX_ID + 1,
                mtime,
                size: 3,
                xattrs: &xattrs,
                ..TarEntry::new(EntryType::Regular, &long, 0o4755)
            };
            let mut bytes = Vec::new();
            entry.write(&mut bytes).expect("headers");
            bytes.extend(b"abc");
            pad(&mut bytes, 3).expect("padding");
            end(&mut bytes).expect("end");
            let mut reader = TarReader::new(&bytes[..]);
            let read = reader.next_entry().expect("read").expect("an entry");
            assert_eq!((read.kind, read.size), (Kind::File, 3));
            assert_eq!((&read.path, &read.link), (&long, &long));
            let mut data = Vec::new();
            reader.read_to_end(&mut data).expect("data");
            assert_eq!(data, b"abc");
            assert!(reader.next_entry().expect("read").is_none());
            let owner = (read.mode, read.uid, read.gid);
            assert_eq!(owner, (0o4755, 4_000_000_000, MAX_ID + 1));
            assert_eq!((read.mtime, &read.xattrs[..]), (mtime, &xattrs[..]));
        }
    }

    #[test]
    fn a_size_over_8_gib_has_an_extended_header() {
        let entry = TarEntry {
            size: MAX_LONG + 1,
            ..TarEntry::new(EntryType::Regular, b"f", 0o444)
        };
        let mut bytes = Vec::new();
        entry.write(&mut bytes).expect("headers");
        let mut reader = TarReader::new(&bytes[..]);
        let read = reader.next_entry().expect("read").expect("an entry");
        assert_eq!(read.size, MAX_LONG + 1);
    }

    #[test]
    fn the_length_of_a_record_includes_itself() {
        for length in 85..105 {
            let mut records = Vec::new();
            record(&mut records, &[b"path"], &vec![b'x'; length]);
            let text = String::from_utf8(records).expect("text");
            let (number, _) = text.split_once(' ').expect("a space");
            assert_eq!(number.parse(), Ok(text.len()));
        }
    }
}
