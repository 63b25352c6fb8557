//! Header blocks: names and values, compressed with one zlib stream per direction for the life of a connection.

use std::collections::HashSet;

use flate2::{Decompress, FlushDecompress, Status};

use super::dictionary::{DICTIONARY_ADLER32, HEADER_DICTIONARY};
use super::error::MalformedFrame;

/// Maximum size of an inflated block, in bytes.
pub(super) const MAX_INFLATED_LEN: usize = 256 * 1024;

/// Maximum number of headers in a block.
const MAX_HEADERS: u32 = 1000;

/// Initial capacity for an inflated block, in bytes.
const INFLATED_CAPACITY: usize = 1024;

/// The headers of a stream; names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamHeaders(Vec<(String, String)>);

impl StreamHeaders {
    /// Returns the value of a header; the first one if it has several.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, values) = self.0.iter().find(|(found, _)| found == name)?;
        values.split('\0').next()
    }

    /// The number of headers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Size of the headers in memory, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        let texts = self.0.iter().map(|(name, value)| name.len() + value.len());
        texts.sum::<usize>() + self.0.len() * size_of::<(String, String)>()
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses an inflated block: the number of headers, then length and bytes of each name and value.
    pub(super) fn read(mut block: &[u8]) -> Result<Self, MalformedFrame> {
        let count = number(&mut block)?;
        if count > MAX_HEADERS {
            return Err(MalformedFrame::TooManyHeaders(count));
        }
        let mut names = HashSet::new();
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = text(&mut block)?.ok_or(MalformedFrame::HeaderName)?;
            let value = text(&mut block)?.ok_or(MalformedFrame::HeaderValue)?;
            if !is_name(name) {
                return Err(MalformedFrame::HeaderName);
            }
            if !names.insert(name) {
                return Err(MalformedFrame::DuplicateHeader);
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
        match block {
            [] => Ok(Self(headers)),
            _ => Err(MalformedFrame::HeaderLengths),
        }
    }
}

/// Returns whether a text is a valid name: visible ASCII without capitals.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
}

fn number(block: &mut &[u8]) -> Result<u32, MalformedFrame> {
    let (number, rest) = block
        .split_first_chunk()
        .ok_or(MalformedFrame::HeaderLengths)?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

/// Returns the next name or value; `None` if it is not text.
fn text<'a>(block: &mut &'a [u8]) -> Result<Option<&'a str>, MalformedFrame> {
    let len = number(block)? as usize;
    let (text, rest) = block
        .split_at_checked(len)
        .ok_or(MalformedFrame::HeaderLengths)?;
    *block = rest;
    Ok(std::str::from_utf8(text).ok())
}

/// Inflates the peer's blocks, in order.
#[derive(Debug)]
pub(super) struct HeaderInflater(Decompress);

impl HeaderInflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Inflates the next block.
    pub(super) fn block(&mut self, mut block: &[u8]) -> Result<StreamHeaders, MalformedFrame> {
        let mut out = Vec::with_capacity(INFLATED_CAPACITY);
        loop {
            let before = self.0.total_in();
            let result = self
                .0
                .decompress_vec(block, &mut out, FlushDecompress::Sync);
            // Bytes are consumed even if the result is the error that requests the dictionary.
            block = &block[(self.0.total_in() - before) as usize..];
            match result {
                Ok(Status::StreamEnd) => return Err(MalformedFrame::Compression),
                Ok(_) => {}
                Err(error) if error.needs_dictionary() == Some(DICTIONARY_ADLER32) => {
                    self.0
                        .set_dictionary(&HEADER_DICTIONARY)
                        .map_err(|_| MalformedFrame::Compression)?;
                    continue;
                }
                Err(_) => return Err(MalformedFrame::Compression),
            }
            if out.len() < out.capacity() {
                // There was capacity left, so the output is complete.
                return match block {
                    [] => StreamHeaders::read(&out),
                    _ => Err(MalformedFrame::Compression),
                };
            }
            if out.len() > MAX_INFLATED_LEN {
                return Err(MalformedFrame::HeadersTooLarge(MAX_INFLATED_LEN));
            }
            // One byte of capacity beyond the limit shows whether there is more.
            out.reserve_exact(out.len().min(MAX_INFLATED_LEN + 1 - out.len()));
        }
    }
}

/// Compresses the server's blocks. All of them are empty, so nothing is searched for in earlier ones: each is the number
/// 0, as a stored block.
#[derive(Debug, Default)]
pub(super) struct HeaderDeflater {
    has_begun: bool,
}

impl HeaderDeflater {
    /// Appends the next block, which has no headers.
    pub(super) fn empty_block(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The head of the zlib stream: a window of 32 KiB, and a dictionary.
            out.extend([0x78, 0xf9]);
            out.extend(DICTIONARY_ADLER32.to_be_bytes());
        }
        // Four stored bytes, then an empty block that flushes the decompressor (sync flush).
        out.extend([0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
        out.extend([0, 0, 0, 0xff, 0xff]);
    }
}
