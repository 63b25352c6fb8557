//! Header blocks: names and values, compressed with one zlib stream per direction for the life of a connection.

use std::collections::HashSet;

use flate2::{Decompress, FlushDecompress, Status};

use super::dictionary::{DICTIONARY, ID};
use super::error::Malformed;

/// Largest block once it is inflated, in bytes.
pub(super) const MAX_INFLATED: usize = 256 * 1024;

/// Most headers in a block.
const MAX_HEADERS: u32 = 1000;

/// Room for an inflated block to begin with, in bytes.
const ROOM: usize = 1024;

/// The headers of a stream: names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header; the first one if it has several.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, values) = self.0.iter().find(|(found, _)| found == name)?;
        values.split('\0').next()
    }

    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What they take, in bytes.
    pub(super) fn room(&self) -> usize {
        let pair = |(name, value): &(String, String)| {
            size_of::<(String, String)>() + name.len() + value.len()
        };
        self.0.iter().map(pair).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads an inflated block: how many, then length and bytes of each name and value.
    pub(super) fn read(mut block: &[u8]) -> Result<Self, Malformed> {
        let count = number(&mut block)?;
        if count > MAX_HEADERS {
            return Err(Malformed::TooManyHeaders(count));
        }
        let mut names = HashSet::new();
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = text(&mut block)?.ok_or(Malformed::HeaderName)?;
            let value = text(&mut block)?.ok_or(Malformed::HeaderValue)?;
            if !is_name(name) {
                return Err(Malformed::HeaderName);
            }
            if !names.insert(name) {
                return Err(Malformed::DuplicateHeader);
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
        match block {
            [] => Ok(Self(headers)),
            _ => Err(Malformed::HeaderLengths),
        }
    }
}

/// Visible ASCII without capitals.
fn is_name(name: &str) -> bool {
    let is_fine = |b: u8| b.is_ascii_graphic() && !b.is_ascii_uppercase();
    !name.is_empty() && name.bytes().all(is_fine)
}

fn number(block: &mut &[u8]) -> Result<u32, Malformed> {
    let (number, rest) = block.split_first_chunk().ok_or(Malformed::HeaderLengths)?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

/// The next name or value; nothing if it is no text.
fn text<'a>(block: &mut &'a [u8]) -> Result<Option<&'a str>, Malformed> {
    let len = number(block)? as usize;
    let (text, rest) = block
        .split_at_checked(len)
        .ok_or(Malformed::HeaderLengths)?;
    *block = rest;
    Ok(std::str::from_utf8(text).ok())
}

/// What inflates the peer's blocks, one after the other.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Inflates the next block.
    pub(super) fn block(&mut self, mut block: &[u8]) -> Result<Headers, Malformed> {
        let mut out = Vec::with_capacity(ROOM);
        loop {
            let before = self.0.total_in();
            let result = self
                .0
                .decompress_vec(block, &mut out, FlushDecompress::Sync);
            // Also with the error that asks for the dictionary something was consumed.
            block = &block[(self.0.total_in() - before) as usize..];
            match result {
                Ok(Status::StreamEnd) => return Err(Malformed::Compression),
                Ok(_) => {}
                Err(error) if error.needs_dictionary() == Some(ID) => {
                    self.0
                        .set_dictionary(&DICTIONARY)
                        .map_err(|_| Malformed::Compression)?;
                    continue;
                }
                Err(_) => return Err(Malformed::Compression),
            }
            if out.len() < out.capacity() {
                // There was room left, so all that was there is out.
                return match block {
                    [] => Headers::read(&out),
                    _ => Err(Malformed::Compression),
                };
            }
            if out.len() > MAX_INFLATED {
                return Err(Malformed::HeadersTooLarge(MAX_INFLATED));
            }
            // One byte of room behind the most that is allowed shows whether there is more.
            out.reserve_exact(out.len().min(MAX_INFLATED + 1 - out.len()));
        }
    }
}

/// What compresses our blocks. All of them are empty, so nothing needs to be searched for in what came before: each is
/// the number 0, stored as it is.
#[derive(Debug, Default)]
pub(super) struct Deflater {
    has_begun: bool,
}

impl Deflater {
    /// Appends the next block, without any header.
    pub(super) fn empty_block(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The head of the zlib stream: a window of 32 KiB, and a dictionary is used.
            out.extend([0x78, 0xf9]);
            out.extend(ID.to_be_bytes());
        }
        // Four stored bytes, then the empty block that tells the other end to pass on what it has.
        out.extend([0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
        out.extend([0, 0, 0, 0xff, 0xff]);
    }
}
