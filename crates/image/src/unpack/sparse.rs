//! Sparse files: the formats of GNU tar, as Go's `archive/tar` reads them. An archive has only the parts of such a file that are no holes.
//!
//! | format | where the map of the parts is |
//! |---|---|
//! | old GNU (entries of the type `S`) | in the header, and in blocks that follow it |
//! | pax 0.0 | in records `GNU.sparse.offset` and `GNU.sparse.numbytes` in turns |
//! | pax 0.1 | in the record `GNU.sparse.map`, with commas |
//! | pax 1.0 | in front of the data, one number in a line |

use std::io;

use super::number::unsigned;
use crate::error::bad;

/// A part of a sparse file that is not a hole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Region {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Bytes that a region takes in memory.
const REGION_COST: u64 = size_of::<Region>() as u64;
/// Prefix of the keys of records about sparse files.
pub(super) const KEYS: &[u8] = b"GNU.sparse.";
/// Bytes of a block of an archive.
const BLOCK: usize = 512;

/// The records of a pax header about a sparse file.
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    name: Option<Vec<u8>>,
    size: Option<Vec<u8>>,
    real_size: Option<Vec<u8>>,
    major: Vec<u8>,
    minor: Vec<u8>,
    count: Vec<u8>,
    map: Vec<u8>,
    /// Numbers of version 0.0, each with a comma after it.
    pairs: Vec<u8>,
    paired: usize,
}

/// Where the map of a sparse file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MapPlace {
    Records,
    Data,
}

fn damaged() -> io::Error {
    bad("a sparse file with a damaged map")
}

impl SparseRecords {
    /// Takes a record; `key` is without [`KEYS`].
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"name" => self.name = non_empty(value),
            b"size" => self.size = non_empty(value),
            b"realsize" => self.real_size = non_empty(value),
            b"major" => self.major = value.to_vec(),
            b"minor" => self.minor = value.to_vec(),
            b"numblocks" => self.count = value.to_vec(),
            b"map" => self.map = value.to_vec(),
            b"offset" | b"numbytes" => {
                let is_offset = self.paired.is_multiple_of(2);
                if is_offset != (key == b"offset") || value.contains(&b',') {
                    return Err(damaged());
                }
                self.paired += 1;
                self.pairs.extend(value);
                self.pairs.push(b',');
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns where the map is; `None` if the file is not sparse.
    ///
    /// # Errors
    /// If the version is not known: what the archive has would be taken for the content of the file.
    pub(super) fn place(&self) -> io::Result<Option<MapPlace>> {
        match (self.major.as_slice(), self.minor.as_slice()) {
            (b"0", b"0" | b"1") => Ok(Some(MapPlace::Records)),
            (b"1", b"0") => Ok(Some(MapPlace::Data)),
            (b"", b"") if self.map.is_empty() && self.pairs.is_empty() => Ok(None),
            (b"", b"") => Ok(Some(MapPlace::Records)),
            _ => Err(bad("a sparse file of an unknown version")),
        }
    }

    /// The path of the file, where the header has another one for programs that do not know sparse files.
    pub(super) fn name(&mut self) -> Option<Vec<u8>> {
        self.name.take()
    }

    /// The size of the file with its holes.
    pub(super) fn size(&self) -> io::Result<Option<u64>> {
        let size = self.size.as_ref().or(self.real_size.as_ref());
        size.map(|size| decimal(size)).transpose()
    }

    /// The map in the records.
    pub(super) fn regions(&self, builder: &mut MapBuilder<'_>) -> io::Result<()> {
        let text = match self.pairs.as_slice() {
            [] => self.map.as_slice(),
            pairs => pairs.strip_suffix(b",").unwrap_or(pairs),
        };
        let count = decimal(&self.count)?;
        if text.is_empty() {
            return if count == 0 { Ok(()) } else { Err(damaged()) };
        }
        let mut numbers = text.split(|byte| *byte == b',');
        for _ in 0..count {
            let offset = decimal(numbers.next().ok_or_else(damaged)?)?;
            let length = decimal(numbers.next().ok_or_else(damaged)?)?;
            builder.add(offset, length)?;
        }
        match numbers.next() {
            Some(_) => Err(damaged()),
            None => Ok(()),
        }
    }
}

/// An empty value deletes an earlier one: the header's counts then.
pub(super) fn non_empty(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// Reads a decimal number, which Go may find with a sign.
fn decimal(text: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(text).map_err(|_| damaged())?;
    let number: i64 = text.parse().map_err(|_| damaged())?;
    u64::try_from(number).map_err(|_| damaged())
}

/// Collects the regions of a file.
#[derive(Debug)]
pub(super) struct MapBuilder<'a> {
    pub(super) regions: Vec<Region>,
    /// The end of the last one.
    end: u64,
    /// Bytes of memory that are left for headers and maps of the entry.
    room: &'a mut u64,
}

impl<'a> MapBuilder<'a> {
    pub(super) fn new(room: &'a mut u64) -> Self {
        Self {
            regions: Vec::new(),
            end: 0,
            room,
        }
    }

    /// Adds a region, which must not begin before the end of the last one.
    pub(super) fn add(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.checked_add(length).ok_or_else(damaged)?;
        if offset < self.end || i64::try_from(end).is_err() {
            return Err(damaged());
        }
        self.end = end;
        self.charge(REGION_COST)?;
        if length > 0 {
            self.regions.push(Region { offset, length });
        }
        Ok(())
    }

    /// Takes memory for the headers of the entry from the remaining budget.
    pub(super) fn charge(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.room.checked_sub(bytes);
        *self.room = left.ok_or_else(|| bad("a sparse file of too many parts"))?;
        Ok(())
    }

    /// The regions of a file of this size; the archive has `stored` bytes of it.
    pub(super) fn finish(self, size: u64, stored: u64) -> io::Result<Vec<Region>> {
        let lengths = self.regions.iter().map(|region| region.length);
        if self.end > size || lengths.sum::<u64>() != stored {
            return Err(damaged());
        }
        Ok(self.regions)
    }

    /// Reads the four entries of a header of the old format, or the 21 of a block that follows it. Returns whether another follows.
    pub(super) fn add_block(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let (entries, rest) = bytes.split_at(bytes.len() / ENTRY * ENTRY);
        for entry in entries.chunks_exact(ENTRY) {
            if entry[0] == 0 {
                break;
            }
            let (offset, length) = entry.split_at(ENTRY / 2);
            self.add(unsigned(offset)?, unsigned(length)?)?;
        }
        Ok(rest.first().is_some_and(|more| *more != 0))
    }
}

/// Bytes of an entry of a map of the old format: offset and length.
const ENTRY: usize = 24;
/// The map in a header of the old format, with the byte that tells whether blocks follow, and the size of the file.
pub(super) const OLD_MAP: std::ops::Range<usize> = 386..386 + 4 * ENTRY + 1;
pub(super) const OLD_SIZE: std::ops::Range<usize> = 483..495;
/// The map in a block that follows such a header.
pub(super) const NEXT_MAP: std::ops::Range<usize> = 0..21 * ENTRY + 1;

/// Reads the map of version 1.0 from the blocks in front of the data.
pub(super) fn read_map(
    builder: &mut MapBuilder<'_>,
    mut block: impl FnMut(&mut [u8; BLOCK]) -> io::Result<()>,
) -> io::Result<()> {
    let mut text: Vec<u8> = Vec::new();
    let mut at = 0;
    let mut next = || -> io::Result<u64> {
        loop {
            let rest = &text[at..];
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let number = decimal(&rest[..length]);
                at += length + 1;
                return number;
            }
            // A line is a number.
            if rest.len() > 32 {
                return Err(damaged());
            }
            text.drain(..at);
            at = 0;
            let mut bytes = [0; BLOCK];
            block(&mut bytes)?;
            text.extend(bytes);
        }
    };
    for _ in 0..next()? {
        builder.add(next()?, next()?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(pairs: &[(&str, &str)]) -> io::Result<SparseRecords> {
        let mut records = SparseRecords::default();
        for (key, value) in pairs {
            records.take(key.as_bytes(), value.as_bytes())?;
        }
        Ok(records)
    }

    fn map(pairs: &[(&str, &str)], size: u64, stored: u64) -> io::Result<Vec<(u64, u64)>> {
        let (records, mut room) = (records(pairs)?, 1 << 20);
        let mut builder = MapBuilder::new(&mut room);
        records.regions(&mut builder)?;
        let regions = builder.finish(size, stored)?;
        Ok(regions.iter().map(|one| (one.offset, one.length)).collect())
    }

    #[test]
    fn maps_in_records_are_read() {
        let zero = [
            ("numblocks", "2"),
            ("offset", "0"),
            ("numbytes", "5"),
            ("offset", "10"),
            ("numbytes", "3"),
        ];
        let one = [
            ("major", "0"),
            ("minor", "1"),
            ("numblocks", "2"),
            ("map", "0,5,10,3"),
        ];
        for pairs in [&zero[..], &one] {
            assert_eq!(map(pairs, 20, 8).expect("a map"), [(0, 5), (10, 3)]);
            let place = records(pairs).expect("records").place().expect("known");
            assert_eq!(place, Some(MapPlace::Records));
        }
        assert_eq!(
            map(&[("numblocks", "0"), ("map", "")], 9, 0).expect("a hole"),
            []
        );
        assert_eq!(
            map(&[("numblocks", "1"), ("map", "9,0")], 9, 0).expect("a hole"),
            []
        );
    }

    #[test]
    fn damaged_maps_are_refused() {
        for (count, text) in [
            ("1", ""),
            ("1", "0"),
            ("1", "0,5,6"),
            ("2", "0,5"),
            ("1", "0,5,6,7"),
            ("1", "-1,5"),
            ("1", "x,5"),
            ("-1", "0,5"),
            ("1", "9223372036854775807,5"),
            ("1", "18446744073709551615,5"),
            // Beyond the end, overlapping, in the wrong order, and less than the archive has.
            ("1", "18,5"),
            ("2", "0,3,2,2"),
            ("2", "10,3,0,2"),
            ("1", "0,4"),
            ("99999999999", "0,5"),
        ] {
            let pairs = [("numblocks", count), ("map", text)];
            assert!(map(&pairs, 20, 5).is_err(), "{count} {text}");
        }
        assert!(records(&[("numbytes", "1")]).is_err());
        assert!(records(&[("offset", "1"), ("offset", "1")]).is_err());
        assert!(records(&[("offset", "1,2")]).is_err());
        for (major, minor) in [("1", ""), ("", "1"), ("1", "1"), ("2", "0")] {
            let records = records(&[("major", major), ("minor", minor)]).expect("records");
            let error = records.place().expect_err("unknown").to_string();
            assert!(error.contains("sparse"), "{error}");
        }
    }

    #[test]
    fn a_map_takes_no_more_memory_than_headers_may() {
        let mut room = 5 * REGION_COST;
        let mut builder = MapBuilder::new(&mut room);
        for number in 0..5 {
            builder.add(number * 2, 1).expect("room");
        }
        assert!(builder.add(100, 1).is_err());
    }
}
