//! Selects the calls that fit into a dump of limited size.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::view;
use criscope_cri::call::CallRecord;

/// Calls omitted because the dump would have been too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OmittedCalls {
    /// In flight, the youngest first.
    pub in_flight: usize,
    /// Calls that matter, the oldest first.
    pub calls: usize,
    /// Polls, the oldest first, and all of them before the first call that matters.
    pub polls: usize,
}

/// The calls of a dump.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectedCalls<'a> {
    pub(super) in_flight: &'a [view::CallView],
    pub(super) calls: &'a [Arc<CallRecord>],
    pub(super) polls: &'a [Arc<CallRecord>],
    pub(super) left_out: OmittedCalls,
}

/// The calls to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvailableCalls<'a> {
    pub(super) in_flight: &'a [view::CallView],
    pub(super) calls: &'a [Arc<CallRecord>],
    pub(super) polls: &'a [Arc<CallRecord>],
}

impl<'a> AvailableCalls<'a> {
    /// The calls that fit into `budget` bytes; `cost` returns the bytes of a row.
    pub(super) fn select(
        self,
        budget: usize,
        cost: impl Fn(&view::CallView) -> usize,
    ) -> SelectedCalls<'a> {
        let mut left = budget;
        // The oldest call in flight hangs most likely. Calls in flight get at most half of the budget, so that a flood of them
        // leaves room for the ended calls.
        let mut for_flight = budget / 2;
        let flying = fit(self.in_flight.iter(), &mut for_flight, &cost);
        left -= budget / 2 - for_flight;
        let calls = fit(self.calls.iter().rev(), &mut left, |record| {
            cost(&view::CallView::from_record(record))
        });
        let mut polls = 0;
        if calls == self.calls.len() {
            polls = fit(self.polls.iter().rev(), &mut left, |record| {
                cost(&view::CallView::from_record(record))
            });
        }
        SelectedCalls {
            in_flight: &self.in_flight[..flying],
            calls: &self.calls[self.calls.len() - calls..],
            polls: &self.polls[self.polls.len() - polls..],
            left_out: OmittedCalls {
                in_flight: self.in_flight.len() - flying,
                calls: self.calls.len() - calls,
                polls: self.polls.len() - polls,
            },
        }
    }
}

/// The number of leading items that fit; subtracts their cost from `left`.
fn fit<'a, T: 'a>(
    items: impl Iterator<Item = &'a T>,
    left: &mut usize,
    cost: impl Fn(&T) -> usize,
) -> usize {
    items
        .map_while(|item| {
            *left = left.checked_sub(cost(item))?;
            Some(())
        })
        .count()
}

/// Bytes of a value as JSON.
pub(super) fn json_len(value: &impl Serialize) -> usize {
    let mut count = ByteCounter(0);
    // Counting cannot fail, and our types can always be serialized.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::record;

    #[test]
    fn the_newest_that_matter_come_first() {
        let calls: Vec<_> = (0..10).map(record).map(Arc::new).collect();
        let polls: Vec<_> = (10..20).map(record).map(Arc::new).collect();
        let in_flight: Vec<_> = (20..25)
            .map(|n| view::CallView::from_record(&record(n)))
            .collect();
        let available = AvailableCalls {
            in_flight: &in_flight,
            calls: &calls,
            polls: &polls,
        };
        let counts = |budget| {
            let s = available.select(budget, |_| 10);
            [s.in_flight.len(), s.calls.len(), s.polls.len()]
        };
        assert_eq!(counts(1000), [5, 10, 10]);
        assert_eq!(counts(200), [5, 10, 5]);
        assert_eq!(counts(100), [5, 5, 0]);
        assert_eq!(counts(60), [3, 3, 0]);
        assert_eq!(counts(0), [0, 0, 0]);
        let some = available.select(200, |_| 10);
        assert_eq!(some.polls[0].seq, 15);
        assert_eq!((some.left_out.polls, some.left_out.calls), (5, 0));
    }

    #[test]
    fn a_call_too_large_is_not_jumped_over() {
        let calls: Vec<_> = (0..3).map(record).map(Arc::new).collect();
        let available = AvailableCalls {
            in_flight: &[],
            calls: &calls,
            polls: &[],
        };
        let chosen = available.select(100, |row| if row.seq == 1 { 99 } else { 10 });
        let seqs: Vec<_> = chosen.calls.iter().map(|r| r.seq).collect();
        assert_eq!((seqs, chosen.left_out.calls), (vec![2], 2));
    }
}
