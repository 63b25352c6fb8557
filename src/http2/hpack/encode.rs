//! Writes header blocks.

use std::collections::VecDeque;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue};

use super::{FIELDS, Name, OVERHEAD, STATIC, STATIC_PSEUDO, TABLE_SIZE};

/// Values longer than this are not remembered: they do not come again, or would take the place of many that do.
const MAX_VALUE: usize = 256;

/// Places by hash. Two headers that share one take it in turns.
const PLACES: usize = 256;

/// A header whose repetition is worth a place in the table.
trait Known {
    fn name(&self) -> &[u8];
    fn value(&self) -> &[u8];
    fn is(&self, entry: &Entry) -> bool;
    fn entry(&self) -> Entry;
}

#[derive(Debug)]
enum Entry {
    Authority(Authority),
    Path(PathAndQuery),
    Header(HeaderName, HeaderValue),
}

impl Known for Authority {
    fn name(&self) -> &[u8] {
        b":authority"
    }
    fn value(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
    fn is(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Authority(other) if other.as_str() == self.as_str())
    }
    fn entry(&self) -> Entry {
        Entry::Authority(self.clone())
    }
}

impl Known for PathAndQuery {
    fn name(&self) -> &[u8] {
        b":path"
    }
    fn value(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
    fn is(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Path(other) if other.as_str() == self.as_str())
    }
    fn entry(&self) -> Entry {
        Entry::Path(self.clone())
    }
}

impl Known for (&HeaderName, &HeaderValue) {
    fn name(&self) -> &[u8] {
        self.0.as_str().as_bytes()
    }
    fn value(&self) -> &[u8] {
        self.1.as_bytes()
    }
    fn is(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Header(name, value) if name == self.0 && value == self.1)
    }
    fn entry(&self) -> Entry {
        Entry::Header(self.0.clone(), self.1.clone())
    }
}

/// This end's memory of the headers that it sent.
#[derive(Debug)]
pub(in super::super) struct Encoder {
    /// The newest first, each with its weight.
    table: VecDeque<(Entry, usize)>,
    size: usize,
    max: usize,
    /// How many have entered the table.
    entered: usize,
    /// For each hash, the number with which the last such header entered.
    places: Box<[usize; PLACES]>,
    /// The smallest size since the last block, if the size changed (RFC 7541, 4.2).
    smallest: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            max: TABLE_SIZE,
            entered: 0,
            places: Box::new([0; PLACES]),
            smallest: None,
        }
    }
}

impl Encoder {
    /// What the other end is willing to remember, in bytes.
    pub(in super::super) fn limit(&mut self, max: usize) {
        let max = max.min(TABLE_SIZE);
        if max != self.max {
            self.smallest = Some(self.smallest.unwrap_or(max).min(max));
            self.max = max;
            self.evict(max);
        }
    }

    /// Begins a block.
    pub(in super::super) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            integer(out, 0x20, 5, smallest);
            if smallest != self.max {
                integer(out, 0x20, 5, self.max);
            }
        }
    }

    /// Writes an entry of the static table.
    pub(in super::super) fn indexed(out: &mut Vec<u8>, index: usize) {
        integer(out, 0x80, 7, index);
    }

    /// Writes a header with a name of the static table, and remembers nothing.
    pub(in super::super) fn literal(out: &mut Vec<u8>, name: usize, value: &[u8]) {
        integer(out, 0, 4, name);
        string(out, value);
    }

    pub(in super::super) fn authority(&mut self, out: &mut Vec<u8>, authority: &Authority) {
        self.known(out, authority);
    }

    pub(in super::super) fn path(&mut self, out: &mut Vec<u8>, path: &PathAndQuery) {
        self.known(out, path);
    }

    pub(in super::super) fn header(
        &mut self,
        out: &mut Vec<u8>,
        name: &HeaderName,
        value: &HeaderValue,
    ) {
        if value.is_sensitive() {
            out.push(0x10);
            string(out, name.as_str().as_bytes());
            string(out, value.as_bytes());
        } else {
            self.known(out, &(name, value));
        }
    }

    fn known(&mut self, out: &mut Vec<u8>, field: &impl Known) {
        let (name, value) = (field.name(), field.value());
        if value.len() > MAX_VALUE || changes(name) {
            out.push(0);
            string(out, name);
            return string(out, value);
        }
        let place = hash(name.len(), value) % PLACES;
        // Numbers count from one: zero is nobody's, and as far away as can be.
        let age = self.entered.wrapping_sub(self.places[place]);
        if let Some((entry, _)) = self.table.get(age)
            && field.is(entry)
        {
            return integer(out, 0x80, 7, STATIC + 1 + age);
        }
        integer(out, 0x40, 6, static_name(name));
        if out.last() == Some(&0x40) {
            string(out, name);
        }
        string(out, value);
        self.insert(field, name.len() + value.len() + OVERHEAD, place);
    }

    fn insert(&mut self, field: &impl Known, weight: usize, place: usize) {
        self.evict(self.max.saturating_sub(weight));
        if weight <= self.max {
            self.size += weight;
            self.table.push_front((field.entry(), weight));
            self.entered += 1;
            self.places[place] = self.entered;
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

/// Whether a header is another one with each call.
fn changes(name: &[u8]) -> bool {
    matches!(
        name,
        b"grpc-timeout"
            | b"traceparent"
            | b"tracestate"
            | b"content-length"
            | b"grpc-message"
            | b"grpc-status-details-bin"
            | b"date"
    )
}

fn hash(name: usize, value: &[u8]) -> usize {
    let mix = |hash: usize, part: [u8; 8]| {
        (hash.rotate_left(5) ^ usize::from_le_bytes(part)).wrapping_mul(0x517c_c1b7_2722_0a95)
    };
    let (parts, rest) = value.as_chunks::<8>();
    let mut hash = mix(name, value.len().to_le_bytes());
    for part in parts {
        hash = mix(hash, *part);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, last) >> 32
}

/// Index of a name in the static table, or 0.
fn static_name(name: &[u8]) -> usize {
    match name {
        b":authority" => 1,
        b":path" => 4,
        _ => {
            let fields = FIELDS.iter().enumerate().skip(STATIC_PSEUDO);
            let mut names = fields.map(|(at, (field, _))| (at + 1, field.name()));
            let found = names.find(
                |(_, other)| matches!(other, Name::Header(other) if other.as_str().as_bytes() == name),
            );
            found.map_or(0, |(index, _)| index)
        }
    }
}

/// RFC 7541, 5.1.
fn integer(out: &mut Vec<u8>, kind: u8, prefix: u32, mut value: usize) {
    let max = (1 << prefix) - 1;
    if value < max {
        return out.push(kind | value as u8);
    }
    out.push(kind | max as u8);
    value -= max;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// RFC 7541, 5.2, as plain text.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}
