//! Percentiles, and medians over rounds.

use serde::Serialize;

/// The value below which a share of a sorted, non-empty slice lies (nearest rank); 0 for an empty one.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or_default()
}

/// The median of some values and what the middle half of them spans.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// First quartile.
    pub(crate) low: f64,
    /// Median.
    pub(crate) median: f64,
    /// Third quartile.
    pub(crate) high: f64,
}

impl Spread {
    /// Of any values, in any order.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Self {
            low: percentile(&values, 0.25),
            median: percentile(&values, 0.5),
            high: percentile(&values, 0.75),
        }
    }
}
