//! A running estimate of the median and the 90th percentile of durations, without the samples.
//!
//! Both move in steps on a logarithmic scale: up when a sample is larger, down when it is smaller, in the ratio that
//! balances at the quantile. A step does not depend on how far off the sample is, so that a single value, or a short storm,
//! moves them by a few percent at most; after some samples a step is 3 %.

use std::time::Duration;

use criscope_cri::units::times::millis;
use serde::{Deserialize, Serialize};

/// Number of first samples that are kept.
const FIRST_SAMPLES: usize = 5;
/// The smallest step, in powers of two.
const MIN_STEP: f64 = 0.04;
/// Shorter durations count as this one.
const MIN_SAMPLE: Duration = Duration::from_micros(10);

/// A running estimate of the median and the 90th percentile. Values are binary logarithms of milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct QuantileEstimate {
    n: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first: Vec<f64>,
    median: f64,
    high: f64,
}

impl QuantileEstimate {
    /// Adds a sample.
    pub(super) fn add(&mut self, took: Duration) {
        let x = millis(took.max(MIN_SAMPLE)).log2();
        self.n = self.n.saturating_add(1);
        if self.first.len() < FIRST_SAMPLES
            && usize::try_from(self.n).is_ok_and(|n| n <= FIRST_SAMPLES)
        {
            self.first.push(x);
            self.first.sort_by(f64::total_cmp);
            self.median = self.first[self.first.len() / 2];
            self.high = self.first.last().copied().unwrap_or(x);
            if self.first.len() == FIRST_SAMPLES {
                self.first = Vec::new();
            }
            return;
        }
        let step = (1.0 / f64::from(self.n)).max(MIN_STEP);
        self.median = moved(self.median, x, step, 0.5);
        self.high = moved(self.high, x, step, 0.9).max(self.median);
    }

    /// Number of samples.
    pub(super) fn samples(&self) -> u32 {
        self.n
    }

    /// The median.
    pub(super) fn median(&self) -> Duration {
        from_log2(self.median)
    }

    /// The 90th percentile.
    pub(super) fn high(&self) -> Duration {
        from_log2(self.high)
    }
}

/// The duration with this binary logarithm of milliseconds. The file may have any number.
fn from_log2(log2: f64) -> Duration {
    Duration::try_from_secs_f64(log2.exp2() / 1e3).unwrap_or(Duration::MAX)
}

/// A step towards the sample, weighted so that it balances where the share `quantile` of samples is below; never beyond it.
fn moved(at: f64, sample: f64, step: f64, quantile: f64) -> f64 {
    if sample > at {
        (at + 2.0 * step * quantile).min(sample)
    } else {
        (at - 2.0 * step * (1.0 - quantile)).max(sample)
    }
}
