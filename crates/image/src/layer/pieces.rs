//! The pieces of a blob that is fetched over several connections: each is fetched by one of them.

use std::ops::Range;
use std::sync::Mutex;

use crate::blocking::lock;

/// The parts that no connection fetches yet.
#[derive(Debug)]
pub(super) struct Pieces {
    size: u64,
    piece: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Nothing after this has been claimed.
    next: u64,
    given_back: Vec<Range<u64>>,
}

impl Pieces {
    /// The pieces of a blob of this size, from an offset on, with this many bytes in a piece.
    pub(super) fn new(from: u64, size: u64, piece: u64) -> Self {
        Self {
            size,
            piece: piece.max(1),
            state: Mutex::new(State {
                next: from,
                given_back: Vec::new(),
            }),
        }
    }

    /// Claims a piece.
    pub(super) fn claim(&self) -> Option<Range<u64>> {
        let mut state = lock(&self.state);
        if let Some(range) = state.given_back.pop() {
            return Some(range);
        }
        let begin = state.next;
        state.next = self.after(begin);
        (begin < self.size).then_some(begin..state.next)
    }

    /// Claims the piece that begins here, unless another connection has. Returns its end.
    pub(super) fn go_on(&self, begin: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        let given_back = state
            .given_back
            .iter()
            .position(|range| range.start == begin);
        if let Some(at) = given_back {
            return Some(state.given_back.swap_remove(at).end);
        }
        if state.next != begin || begin >= self.size {
            return None;
        }
        state.next = self.after(begin);
        Some(state.next)
    }

    /// Gives a part of a claimed piece back that was not fetched.
    pub(super) fn give_back(&self, range: Range<u64>) {
        if !range.is_empty() {
            lock(&self.state).given_back.push(range);
        }
    }

    /// Returns whether nothing is left to claim.
    pub(super) fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.next >= self.size && state.given_back.is_empty()
    }

    /// Returns whether there is enough for another connection.
    pub(super) fn are_many(&self) -> bool {
        let left = self.size.saturating_sub(lock(&self.state).next);
        left >= self.piece.saturating_mul(2)
    }

    fn after(&self, begin: u64) -> u64 {
        begin.saturating_add(self.piece).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_claimed_once() {
        let pieces = Pieces::new(5, 32, 10);
        assert_eq!(pieces.claim(), Some(5..15));
        assert!(!pieces.are_many());
        // Another connection continues the first.
        assert_eq!(pieces.go_on(15), Some(25));
        assert_eq!(pieces.go_on(15), None);
        assert_eq!(pieces.claim(), Some(25..32));
        assert_eq!((pieces.claim(), pieces.go_on(32)), (None, None));
        assert!(pieces.is_empty());
        pieces.give_back(30..32);
        pieces.give_back(32..32);
        assert!(!pieces.is_empty());
        assert_eq!(pieces.claim(), Some(30..32));
        assert!(pieces.is_empty());
        pieces.give_back(15..25);
        assert_eq!(pieces.go_on(15), Some(25));
        assert!(pieces.is_empty());
    }
}
