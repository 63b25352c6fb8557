//! Reads header blocks.

use std::collections::VecDeque;

use super::{FIELDS, Field, Name, OVERHEAD, STATIC, TABLE_SIZE, huffman};

/// The block cannot be read, and with it no later one: the connection is over (`COMPRESSION_ERROR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Unreadable;

type Result<T> = std::result::Result<T, Unreadable>;

/// One end's memory of the headers that the other sent.
#[derive(Debug)]
pub(in super::super) struct Decoder {
    /// The newest first, each with its weight.
    table: VecDeque<(Field, usize)>,
    size: usize,
    max: usize,
    /// Text that was decoded from Huffman's code.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            max: TABLE_SIZE,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// Hands each header of a whole block on, with its weight (RFC 9113, 6.5.2).
    ///
    /// # Errors
    /// [`Unreadable`].
    pub(in super::super) fn decode(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(Field, usize),
    ) -> Result<()> {
        let mut rest = block;
        let mut is_begin = true;
        while let Some(first) = rest.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    let (field, weight) = self.get(index)?;
                    each(field.clone(), *weight);
                }
                0x20..0x40 => {
                    // RFC 7541, 4.2.
                    let max = integer(&mut rest, 5)?;
                    if !is_begin || max > TABLE_SIZE {
                        return Err(Unreadable);
                    }
                    self.max = max;
                    self.evict(max);
                    continue;
                }
                0x40.. => {
                    let (field, weight) = self.literal(&mut rest, 6)?;
                    self.insert(field.clone(), weight);
                    each(field, weight);
                }
                first => {
                    let is_secret = first & 0x10 != 0;
                    let (mut field, weight) = self.literal(&mut rest, 4)?;
                    if is_secret && let Field::Header(_, value) = &mut field {
                        value.set_sensitive(true);
                    }
                    each(field, weight);
                }
            }
            is_begin = false;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn get(&self, index: usize) -> Result<&(Field, usize)> {
        let field = match index {
            0 => None,
            1..=STATIC => FIELDS.get(index - 1),
            _ => self.table.get(index - STATIC - 1),
        };
        field.ok_or(Unreadable)
    }

    fn literal(&mut self, rest: &mut &[u8], prefix: u32) -> Result<(Field, usize)> {
        let name = match integer(rest, prefix)? {
            0 => Name::new(string(rest, &mut self.name)?),
            index => self.get(index)?.0.name(),
        };
        let value = string(rest, &mut self.value)?;
        let weight = name.len() + value.len() + OVERHEAD;
        Ok((Field::new(name, value), weight))
    }

    fn insert(&mut self, field: Field, weight: usize) {
        self.evict(self.max.saturating_sub(weight));
        // One that is larger than the table empties it (RFC 7541, 4.4).
        if weight <= self.max {
            self.size += weight;
            self.table.push_front((field, weight));
        }
    }

    fn evict(&mut self, max: usize) {
        while self.size > max
            && let Some((_, weight)) = self.table.pop_back()
        {
            self.size -= weight;
        }
    }
}

/// RFC 7541, 5.1. Nothing here is longer than a block may be.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize> {
    let mut next = || {
        let (first, others) = rest.split_first().ok_or(Unreadable)?;
        *rest = others;
        Ok(usize::from(*first))
    };
    let max = (1 << prefix) - 1;
    let mut value = next()? & max;
    if value < max {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Unreadable)
}

/// RFC 7541, 5.2.
fn string<'d, 'b: 'd>(rest: &mut &'b [u8], decoded: &'d mut Vec<u8>) -> Result<&'d [u8]> {
    let is_encoded = rest.first().ok_or(Unreadable)? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(len).ok_or(Unreadable)?;
    *rest = others;
    if !is_encoded {
        return Ok(text);
    }
    decoded.clear();
    huffman::decode(text, decoded).ok_or(Unreadable)?;
    Ok(decoded)
}
