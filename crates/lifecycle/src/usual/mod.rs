//! Usual durations on this node: of calls, CNI plugins and image pulls that succeed, so that a sentence can say "12 s, usually 3 s
//! here".
//!
//! A [`TypicalDuration`] value is estimated per [`WorkKey`], in a few bytes and without the samples. Only closed, successful episodes
//! without failed calls teach, each at most once per key, and only while at most [`MAX_STARTS_IN_SAMPLE`] pods start: what happens in a
//! storm is measured against it and does not change it. Kept in a file beside the journal.

use criscope_cri::units::times::{self, UnixMicros};

mod estimate;
mod file;
mod key;
mod node;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::estimate::QuantileEstimate;
pub(super) use self::file::{UsualFile, load};
pub(super) use self::key::WorkKey;
pub(super) use self::node::{ComparedDuration, MANY_STARTS, NodeContext};

/// Most keys; the one not fed for longest is evicted.
const MAX_KEYS: usize = 256;
/// Fewest samples for a comparison.
const MIN_SAMPLES: u32 = 5;
/// Most pods that start at the same time in a sample, including its own.
pub(super) const MAX_STARTS_IN_SAMPLE: usize = 2;

/// The usual durations, by kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UsualDurations {
    keys: HashMap<WorkKey, UsualEntry>,
    /// True if it has changed since it was written.
    #[serde(skip)]
    changed: bool,
    /// Durations from here on are slow even if they are usual.
    #[serde(skip)]
    slow: Duration,
}

impl Default for UsualDurations {
    /// With the default of `story.slow`.
    fn default() -> Self {
        Self::new(Duration::from_secs(2))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct UsualEntry {
    #[serde(flatten)]
    estimate: QuantileEstimate,
    /// The time of the last sample.
    at: UnixMicros,
}

/// The usual duration of a kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TypicalDuration {
    /// Half take less.
    #[serde(with = "times::micros")]
    pub(super) median: Duration,
    /// Nine of ten take less.
    #[serde(with = "times::micros")]
    pub(super) high: Duration,
}

/// What was usual when a call ended. The node goes on learning; what is told of a call that has ended stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UsualAtEnd {
    #[serde(flatten)]
    typical: TypicalDuration,
    /// The pods that started during the call, once its episode is closed.
    #[serde(skip)]
    starts: Option<usize>,
}

impl TypicalDuration {
    /// A duration is unusual if it is more than twice the median, above what nine of ten take, and the difference is worth
    /// mentioning.
    pub(super) fn is_exceeded_by(&self, took: Duration) -> bool {
        took > 2 * self.median && took > self.high && took >= self.median + MIN_DIFFERENCE
    }
}

/// A difference that is worth mentioning.
const MIN_DIFFERENCE: Duration = Duration::from_millis(500);

impl UsualDurations {
    /// An empty memory. Durations from `slow` on are slow even if they are usual.
    pub(super) fn new(slow: Duration) -> Self {
        Self {
            keys: HashMap::new(),
            changed: false,
            slow,
        }
    }

    /// Takes over the memory of an earlier process.
    pub(super) fn restore(&mut self, earlier: Self) {
        self.keys = earlier.keys;
    }

    /// Returns whether a duration is slow even if it is usual.
    pub(super) fn is_slow(&self, took: Duration) -> bool {
        took >= self.slow
    }

    /// The duration from which work is slow even if that is usual.
    pub(super) fn slow(&self) -> Duration {
        self.slow
    }

    /// The usual duration for this key; `None` while there are too few samples.
    pub(super) fn typical(&self, key: &WorkKey) -> Option<TypicalDuration> {
        let estimate = &self.keys.get(key)?.estimate;
        (estimate.samples() >= MIN_SAMPLES).then(|| TypicalDuration {
            median: estimate.median(),
            high: estimate.high(),
        })
    }

    /// Adds a sample.
    pub(super) fn learn(&mut self, key: WorkKey, took: Duration, at: UnixMicros) {
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&key) {
            let oldest = self.keys.iter().min_by_key(|(_, entry)| entry.at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| self.keys.remove(&key));
        }
        let entry = self.keys.entry(key).or_insert_with(|| UsualEntry {
            estimate: QuantileEstimate::default(),
            at,
        });
        entry.estimate.add(took);
        entry.at = entry.at.max(at);
        self.changed = true;
    }

    /// A copy to be written, if the memory has changed since the last one.
    pub(super) fn take_changed(&mut self) -> Option<Self> {
        std::mem::take(&mut self.changed).then(|| self.clone())
    }
}
