//! A ring of records that is overwritten in index.
//!
//! Storage grows in pieces of fixed size until the ring is full; no record moves. From then on a new record replaces the
//! oldest, which is moved out of the lock and dropped outside: freeing its strings can take long.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::CallRecord;

/// Records in one piece of storage.
const PIECE: usize = 64;

/// Records that a reader copies before it releases the lock: some 5 us.
const AT_ONCE: usize = 64;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Mutex<Slots>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Slots {
    /// Each but the last holds [`PIECE`] records.
    pieces: Vec<Vec<CallRecord>>,
    /// Records written in total. Record number `n` is, or was, in slot `n % limit`.
    written: u64,
}

impl Ring {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slots: Mutex::new(Slots {
                pieces: Vec::with_capacity(limit.div_ceil(PIECE)),
                written: 0,
            }),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // A panic elsewhere cannot leave a slot half-written: records are moved whole.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record, over the oldest if the ring is full.
    pub(super) fn push(&self, record: CallRecord) {
        if self.limit == 0 {
            return;
        }
        let old = self.lock().put(record, self.limit);
        drop(old);
    }

    /// Returns the records, oldest first, and how many older ones were overwritten. Records overwritten during the copy, or
    /// added after it began, are not included.
    pub(super) fn copy(&self) -> (Vec<CallRecord>, u64) {
        let (mut from, until) = self.lock().span(self.limit);
        let mut copied = Vec::with_capacity((until - from) as usize);
        while from < until {
            let slots = self.lock();
            from = from.max(slots.span(self.limit).0);
            let to = until.min(from + AT_ONCE as u64);
            copied.extend((from..to).filter_map(|n| slots.get(n, self.limit).cloned()));
            from = to.max(from);
        }
        let before = until - copied.len() as u64;
        (copied, before)
    }

    #[cfg(test)]
    pub(super) fn while_locked(&self, f: impl FnOnce()) {
        let _held = self.lock();
        f();
    }
}

impl Slots {
    /// Numbers of the oldest record and of the next.
    fn span(&self, limit: usize) -> (u64, u64) {
        (self.written.saturating_sub(limit as u64), self.written)
    }

    fn get(&self, number: u64, limit: usize) -> Option<&CallRecord> {
        let slot = (number % limit as u64) as usize;
        self.pieces.get(slot / PIECE)?.get(slot % PIECE)
    }

    /// Puts a record into its slot and returns the one it replaces.
    fn put(&mut self, record: CallRecord, limit: usize) -> Option<CallRecord> {
        let slot = (self.written % limit as u64) as usize;
        self.written += 1;
        let (piece, index) = (slot / PIECE, slot % PIECE);
        if piece == self.pieces.len() {
            let room = PIECE.min(limit - piece * PIECE);
            self.pieces.push(Vec::with_capacity(room));
        }
        let piece = self.pieces.get_mut(piece)?;
        match piece.get_mut(index) {
            Some(old) => Some(std::mem::replace(old, record)),
            None => {
                piece.push(record);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::lifecycle::view::call::tests::record;

    fn numbers(ring: &Ring) -> Vec<u64> {
        ring.copy().0.iter().map(|r| r.seq).collect()
    }

    #[test]
    fn the_last_ones_are_kept_in_order() {
        for limit in [1, 63, 64, 65, 200] {
            let ring = Ring::new(limit);
            assert_eq!(numbers(&ring), Vec::<u64>::new());
            for n in 0..300_u64 {
                ring.push(record(n));
                let first = (n + 1).saturating_sub(limit as u64);
                assert_eq!(numbers(&ring), (first..=n).collect::<Vec<_>>(), "{limit}");
                assert_eq!(ring.copy().1, first);
            }
        }
        let none = Ring::new(0);
        none.push(record(1));
        assert!(numbers(&none).is_empty());
    }

    #[test]
    fn storage_does_not_move_and_has_a_bound() {
        let ring = Ring::new(100);
        let mut buffers = Vec::new();
        for n in 0..1000 {
            ring.push(record(n));
            let slots = ring.lock();
            let first = slots.pieces[0].as_ptr();
            buffers.push((first, slots.pieces.as_ptr()));
            let room: usize = slots.pieces.iter().map(Vec::capacity).sum();
            assert!(room <= 100 && slots.pieces.capacity() == 2);
        }
        buffers.dedup();
        assert_eq!(buffers.len(), 1);
    }

    /// Two rings of the default sizes (3,072 records) take less than 1.5 MB, and a record is moved in less than 100 ns.
    #[test]
    fn records_are_small() {
        assert!(
            size_of::<CallRecord>() <= 464,
            "{}",
            size_of::<CallRecord>()
        );
    }

    /// Concurrent writers and readers: the copy is in order and has no duplicates.
    #[test]
    fn readers_and_writers_do_not_disturb_each_other() {
        const EACH: u64 = 20_000;
        let ring = Ring::new(1000);
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for writer in 0..2 {
                let (ring, begin) = (&ring, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for n in 0..EACH {
                        ring.push(record(writer * EACH + n));
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    begin.wait();
                    for _ in 0..100 {
                        let (copied, _) = ring.copy();
                        assert!(copied.len() <= 1000);
                        for writer in 0..2 {
                            let of = |r: &&CallRecord| r.seq / EACH == writer;
                            let seen: Vec<_> = copied.iter().filter(of).map(|r| r.seq).collect();
                            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
                        }
                    }
                });
            }
        });
        let (copied, before) = ring.copy();
        assert_eq!((copied.len(), before), (1000, 2 * EACH - 1000));
    }

    /// An old record may hold the last reference to its strings: they are freed outside the lock.
    #[test]
    fn the_oldest_is_dropped_outside_the_lock() {
        let mut slots = Slots::default();
        let mut old = record(1);
        let text: std::sync::Arc<str> = "an image".into();
        old.image = Some(std::sync::Arc::clone(&text));
        assert!(slots.put(old, 1).is_none());
        let out = slots.put(record(2), 1).expect("it is returned");
        assert_eq!((out.seq, std::sync::Arc::strong_count(&text)), (1, 2));
    }
}
