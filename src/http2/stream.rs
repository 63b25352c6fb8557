//! What is known of the streams of a connection.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Index, IndexMut};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::error::Error;
use super::head::ResponseHead;

/// Where a stream is kept. Not its number on the wire.
pub(super) type Key = usize;

/// From so many pieces that wait for their reader on, small ones are put together: a piece costs more than its bytes,
/// and holds the buffer that it was read into.
const PIECES: usize = 4;
const SMALL: usize = 512;
const TOGETHER: usize = 8192;

/// Places for streams that are kept when nobody needs them.
const SPARE: usize = 32;

/// A stream, for as long as the other end knows it or someone here holds it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Its number on the wire.
    pub(super) id: u32,
    /// How many hold it.
    pub(super) handles: u8,
    /// Whether frames may still come or go.
    pub(super) is_open: bool,
    /// Why it broke.
    pub(super) error: Option<Error>,

    /// Head of the answer, until it is taken.
    pub(super) head: Option<ResponseHead>,
    pub(super) has_head: bool,
    pub(super) data: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    /// The other end has sent everything.
    pub(super) received_all: bool,
    /// Nobody reads: what comes is thrown away.
    pub(super) is_unread: bool,
    /// What the other end may still send, in bytes.
    pub(super) receive_window: i64,
    /// What was read and not given back to that window yet.
    pub(super) taken: i64,
    /// What has to come according to `content-length`.
    pub(super) expected: Option<u64>,
    pub(super) reader: Option<Waker>,

    /// This end has sent everything.
    pub(super) sent_all: bool,
    /// What may still be sent, in bytes; below zero if the other end changed its mind.
    pub(super) send_window: i64,
    pub(super) writer: Option<Waker>,
    /// Its writer waits for room on the connection.
    pub(super) is_queued: bool,
}

impl Stream {
    /// Keeps a piece for the reader.
    pub(super) fn push(&mut self, piece: Bytes) {
        let is_many = self.data.len() >= PIECES && piece.len() < SMALL;
        let has_room = |last: &Bytes| last.len() + piece.len() <= TOGETHER;
        if is_many
            && self.data.back().is_some_and(has_room)
            && let Some(last) = self.data.pop_back()
        {
            let mut last = last.try_into_mut().unwrap_or_else(|shared| {
                let mut own = BytesMut::with_capacity(TOGETHER);
                own.extend_from_slice(&shared);
                own
            });
            last.extend_from_slice(&piece);
            return self.data.push_back(last.freeze());
        }
        self.data.push_back(piece);
    }

    /// Whether `content-length` allows so much more, and an end behind it.
    pub(super) fn expects(&mut self, len: usize, is_end: bool) -> bool {
        let Some(expected) = &mut self.expected else {
            return true;
        };
        let left = expected.checked_sub(len as u64);
        *expected = left.unwrap_or(0);
        left.is_some_and(|left| left == 0 || !is_end)
    }

    /// Whether the reader has seen everything.
    pub(super) fn is_at_end(&self) -> bool {
        self.received_all && self.data.is_empty() && self.trailers.is_none()
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    pub(super) fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// Keeps a waker, which is nearly always there already.
pub(super) fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(kept) if kept.will_wake(waker) => {}
        place => *place = Some(waker.clone()),
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    free: Vec<Key>,
    /// Those that are open.
    by_id: HashMap<u32, Key, BuildHasherDefault<IdHasher>>,
}

impl Streams {
    /// Opens a stream.
    pub(super) fn open(&mut self, id: u32) -> Key {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream::default());
            self.slots.len() - 1
        });
        let stream = &mut self.slots[key];
        stream.id = id;
        stream.is_open = true;
        self.by_id.insert(id, key);
        key
    }

    /// No frame comes or goes any more.
    pub(super) fn close(&mut self, key: Key) {
        let stream = &mut self.slots[key];
        if std::mem::take(&mut stream.is_open) {
            self.by_id.remove(&stream.id);
        }
    }

    /// Nobody holds it, and it is closed.
    pub(super) fn free(&mut self, key: Key) {
        let slot = &mut self.slots[key];
        // The room for pieces is used again, if it is not much.
        let mut data = std::mem::take(&mut slot.data);
        data.clear();
        data.shrink_to(SPARE);
        *slot = Stream {
            data,
            ..Stream::default()
        };
        self.free.push(key);
        if self.slots.len() > SPARE && self.free.len() == self.slots.len() {
            // A storm is over.
            self.slots.truncate(SPARE);
            self.slots.shrink_to(SPARE);
            self.free.retain(|key| *key < SPARE);
            self.free.shrink_to(SPARE);
            self.by_id.shrink_to(SPARE);
        }
    }

    pub(super) fn find(&self, id: u32) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    /// How many places there are; no key is above.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.slots.get_mut(key)
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Those that are open.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.by_id.values().copied().collect()
    }
}

impl Index<Key> for Streams {
    type Output = Stream;

    fn index(&self, key: Key) -> &Stream {
        &self.slots[key]
    }
}

impl IndexMut<Key> for Streams {
    fn index_mut(&mut self, key: Key) -> &mut Stream {
        &mut self.slots[key]
    }
}

/// Spreads numbers that count up.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_pieces_are_put_together_and_nothing_is_lost() {
        let mut stream = Stream::default();
        let mut all = Vec::new();
        let buffer = Bytes::from(vec![7; 100_000]);
        for n in 0..50_000usize {
            let piece = buffer.slice(n..n + 1 + n % 3);
            all.extend_from_slice(&piece);
            stream.push(piece);
            if n == 100 {
                stream.push(buffer.slice(..SMALL));
                all.extend_from_slice(&buffer[..SMALL]);
            }
        }
        assert!(stream.data.len() < PIECES + 2 + all.len() * 2 / TOGETHER);
        let got: Vec<u8> = stream.data.into_iter().flatten().collect();
        assert!(got == all);
    }

    #[test]
    fn places_are_used_again_and_given_back() {
        let mut streams = Streams::default();
        let keys: Vec<_> = (0..1000).map(|n| streams.open(2 * n + 1)).collect();
        assert_eq!((streams.count(), streams.places()), (1000, 1000));
        assert_eq!(streams.find(9), Some(keys[4]));
        for key in keys {
            streams.close(key);
            streams.free(key);
        }
        assert_eq!((streams.count(), streams.places()), (0, SPARE));
        assert!(streams.open(2001) < SPARE);
        assert_eq!(streams.find(9), None);
    }
}
