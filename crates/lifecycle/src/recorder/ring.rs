//! The last records: a new one replaces the oldest.
//!
//! A record is written once and shared with the stories. The oldest is dropped outside of the lock, since freeing its strings
//! can take long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use criscope_cri::call::CallRecord;

/// Number of records that a reader takes before it releases the lock, after about 5 us.
const RECORDS_PER_LOCK: u64 = 512;

/// A ring of records.
#[derive(Debug)]
pub(super) struct RecordRing {
    records: Mutex<RingRecords>,
    limit: usize,
}

#[derive(Debug, Default)]
struct RingRecords {
    /// The oldest first.
    kept: VecDeque<Arc<CallRecord>>,
    /// Number of records written in total. A record's number is this count when it was written.
    written: u64,
}

impl RecordRing {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            records: Mutex::default(),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RingRecords> {
        // A panic elsewhere cannot leave a record half-written: records are moved whole.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record, over the oldest if the ring is full.
    pub(super) fn push(&self, record: Arc<CallRecord>) {
        if self.limit == 0 {
            return;
        }
        let old = self.lock().put(record, self.limit);
        drop(old);
    }

    /// Returns the records, oldest first, and how many older ones were overwritten. Records that are overwritten or added
    /// during the collection are not included.
    pub(super) fn collect(&self) -> (Vec<Arc<CallRecord>>, u64) {
        let (mut from, until) = self.lock().span();
        let mut collected = Vec::with_capacity((until - from) as usize);
        while from < until {
            let records = self.lock();
            from = from.max(records.span().0);
            let to = until.min(from + RECORDS_PER_LOCK);
            collected.extend((from..to).filter_map(|n| records.get(n).cloned()));
            from = to.max(from);
        }
        let before = until - collected.len() as u64;
        (collected, before)
    }

    #[cfg(test)]
    pub(super) fn while_locked(&self, f: impl FnOnce()) {
        let _held = self.lock();
        f();
    }
}

impl RingRecords {
    /// Numbers of the oldest record and of the next.
    fn span(&self) -> (u64, u64) {
        (self.written - self.kept.len() as u64, self.written)
    }

    fn get(&self, number: u64) -> Option<&Arc<CallRecord>> {
        let index = number.checked_sub(self.span().0)?;
        self.kept.get(usize::try_from(index).ok()?)
    }

    /// Adds a record and returns the one it replaces.
    fn put(&mut self, record: Arc<CallRecord>, limit: usize) -> Option<Arc<CallRecord>> {
        let old = if self.kept.len() < limit {
            None
        } else {
            self.kept.pop_front()
        };
        self.kept.push_back(record);
        self.written += 1;
        old
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::examples::record;

    fn numbers(ring: &RecordRing) -> Vec<u64> {
        ring.collect().0.iter().map(|r| r.seq).collect()
    }

    #[test]
    fn the_last_ones_are_kept_in_order() {
        for limit in [1, 63, 64, 65, 200] {
            let ring = RecordRing::new(limit);
            assert_eq!(numbers(&ring), Vec::<u64>::new());
            for n in 0..300_u64 {
                ring.push(Arc::new(record(n)));
                let first = (n + 1).saturating_sub(limit as u64);
                assert_eq!(numbers(&ring), (first..=n).collect::<Vec<_>>(), "{limit}");
                assert_eq!(ring.collect().1, first);
            }
        }
        let none = RecordRing::new(0);
        none.push(Arc::new(record(1)));
        assert!(numbers(&none).is_empty());
    }

    /// Those of two rings of the default sizes (3,072 records) take less than 1 MB.
    #[test]
    fn records_are_small() {
        assert!(
            size_of::<CallRecord>() <= 304,
            "{}",
            size_of::<CallRecord>()
        );
    }

    /// Concurrent writers and readers: what is collected is in order and has no duplicates.
    #[test]
    fn readers_and_writers_do_not_disturb_each_other() {
        const EACH: u64 = 20_000;
        let ring = RecordRing::new(1000);
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for writer in 0..2 {
                let (ring, begin) = (&ring, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for n in 0..EACH {
                        ring.push(Arc::new(record(writer * EACH + n)));
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    begin.wait();
                    for _ in 0..100 {
                        let (collected, _) = ring.collect();
                        assert!(collected.len() <= 1000);
                        for writer in 0..2 {
                            let of = |r: &&Arc<CallRecord>| r.seq / EACH == writer;
                            let seen: Vec<_> = collected.iter().filter(of).map(|r| r.seq).collect();
                            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
                        }
                    }
                });
            }
        });
        let (collected, before) = ring.collect();
        assert_eq!((collected.len(), before), (1000, 2 * EACH - 1000));
    }

    /// An old record may hold the last reference to its strings: they are freed outside the lock.
    #[test]
    fn the_oldest_is_dropped_outside_the_lock() {
        let mut records = RingRecords::default();
        let mut old = record(1);
        let text: Arc<str> = "an image".into();
        old.image = Some(Arc::clone(&text));
        assert!(records.put(Arc::new(old), 1).is_none());
        let out = records.put(Arc::new(record(2)), 1).expect("it is returned");
        assert_eq!((out.seq, Arc::strong_count(&text)), (1, 2));
    }
}
