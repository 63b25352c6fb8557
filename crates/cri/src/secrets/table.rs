//! Bounded sets of hashes. The oldest are forgotten first.

use std::collections::{HashSet, VecDeque};

/// Most hashes of one generation. A full one takes 256 KiB.
const MOST_HASHES: usize = MOST_SLOTS / 4 * 3;
const MOST_SLOTS: usize = 1 << 16;
const FIRST_SLOTS: usize = 1 << 10;

/// Most objects of one generation; each takes some 16 bytes.
const MOST_OBJECTS: usize = 2048;

/// Generations that are kept. With all of them full, at most 1 MiB is used.
const GENERATIONS: usize = 3;

/// Hashes of windows, and the objects whose requests are in them as a whole, in generations.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// The newest last. Empty until the first hash.
    all: VecDeque<Generation>,
    /// Generations that have been dropped.
    dropped: u64,
}

#[derive(Debug, Default)]
struct Generation {
    hashes: Hashes,
    objects: HashSet<u64>,
}

impl Generations {
    /// The number of the newest generation.
    pub(super) fn newest(&self) -> u64 {
        self.dropped + (self.all.len() as u64).saturating_sub(1)
    }

    /// Adds a hash to the newest generation, or to a new one if that is full.
    pub(super) fn insert(&mut self, hash: u64) {
        let newest = self.newest_unless(|newest| newest.hashes.len >= MOST_HASHES);
        newest.hashes.insert(fold(hash));
    }

    /// Returns whether the hash is in any generation.
    pub(super) fn contains(&self, hash: u64) -> bool {
        let hash = fold(hash);
        self.all
            .iter()
            .any(|generation| generation.hashes.contains(hash))
    }

    /// Marks an object as known as long as the generation `since` is kept, in which its first hash is.
    pub(super) fn know(&mut self, object: u64, since: u64) {
        self.newest_unless(|newest| newest.objects.len() >= MOST_OBJECTS);
        let Some(at) = since.checked_sub(self.dropped) else {
            return;
        };
        let at = usize::try_from(at).ok();
        if let Some(generation) = at.and_then(|at| self.all.get_mut(at)) {
            generation.objects.insert(object);
        }
    }

    /// Returns whether all hashes of an object are kept.
    pub(super) fn knows(&self, object: u64) -> bool {
        self.all
            .iter()
            .any(|generation| generation.objects.contains(&object))
    }

    /// No object is known any more. The hashes stay.
    pub(super) fn forget_objects(&mut self) {
        for generation in &mut self.all {
            generation.objects.clear();
        }
    }

    fn newest_unless(&mut self, is_full: impl Fn(&Generation) -> bool) -> &mut Generation {
        if self.all.back().is_none_or(is_full) {
            if self.all.len() == GENERATIONS {
                self.all.pop_front();
                self.dropped += 1;
            }
            self.all.push_back(Generation::default());
        }
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.all
            .iter()
            .map(|generation| {
                4 * generation.hashes.slots.len() + 16 * generation.objects.capacity()
            })
            .sum()
    }
}

/// The hash as it is kept: 0 is a free slot.
const fn fold(hash: u64) -> u32 {
    let folded = (hash ^ (hash >> 32)) as u32;
    if folded == 0 { 1 } else { folded }
}

/// A hash table with open addressing, which grows until it has [`MOST_SLOTS`].
#[derive(Debug, Default)]
struct Hashes {
    slots: Vec<u32>,
    len: usize,
}

impl Hashes {
    fn insert(&mut self, hash: u32) {
        if self.len >= self.slots.len() / 4 * 3 {
            let larger = (2 * self.slots.len()).max(FIRST_SLOTS);
            let before = std::mem::replace(&mut self.slots, vec![0; larger]);
            for hash in before.into_iter().filter(|hash| *hash != 0) {
                let at = self.slot(hash);
                self.slots[at] = hash;
            }
        }
        let at = self.slot(hash);
        if self.slots[at] == 0 {
            self.slots[at] = hash;
            self.len += 1;
        }
    }

    fn contains(&self, hash: u32) -> bool {
        !self.slots.is_empty() && self.slots[self.slot(hash)] == hash
    }

    /// Where the hash is or belongs. There is always a free slot.
    fn slot(&self, hash: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 && self.slots[at] != hash {
            at = (at + 1) & mask;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A well-mixed number.
    fn hash(n: u64) -> u64 {
        let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ (n >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    #[test]
    fn nothing_is_allocated_before_the_first_hash() {
        let none = Generations::default();
        assert_eq!(none.bytes(), 0);
        assert!(!none.contains(hash(1)) && !none.knows(1));
    }

    #[test]
    fn the_oldest_are_forgotten_and_the_memory_is_bounded() {
        let mut all = Generations::default();
        let since = all.newest();
        all.insert(hash(0));
        all.know(7, since);
        let most = MOST_HASHES as u64;
        for n in 1..2 * most {
            all.insert(hash(n));
        }
        assert!(all.contains(hash(0)) && all.knows(7));
        for n in 2 * most..10 * most {
            all.insert(hash(n));
        }
        assert!(!all.contains(hash(0)) && !all.knows(7));
        assert!(all.contains(hash(10 * most - 1)));
        assert!(all.bytes() <= 1 << 20, "{}", all.bytes());
    }

    #[test]
    fn an_object_is_known_as_long_as_its_first_hash() {
        let mut all = Generations::default();
        let since = all.newest();
        // The hashes of one object fill more than is kept.
        for n in 0..5 * MOST_HASHES as u64 {
            all.insert(hash(n));
        }
        all.know(7, since);
        assert!(!all.knows(7));
        all.know(8, all.newest());
        assert!(all.knows(8));
        all.forget_objects();
        assert!(!all.knows(8) && all.contains(hash(5 * MOST_HASHES as u64 - 1)));
    }

    #[test]
    fn objects_are_bounded_too() {
        let mut all = Generations::default();
        for n in 0..10 * MOST_OBJECTS as u64 {
            all.know(n, all.newest());
        }
        assert!(all.bytes() <= 1 << 20, "{}", all.bytes());
        assert!(!all.knows(0) && all.knows(10 * MOST_OBJECTS as u64 - 1));
    }

    #[test]
    fn hardly_another_hash_is_found() {
        let mut all = Generations::default();
        let most = 3 * MOST_HASHES as u64;
        (0..most).for_each(|n| all.insert(hash(n)));
        let others = (most..2 * most).filter(|n| all.contains(hash(*n))).count();
        assert!(others < 30, "{others}");
    }
}
