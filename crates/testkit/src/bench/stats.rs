//! Percentiles, and medians over rounds.

use serde::Serialize;

/// The value below which a share of a sorted slice lies (nearest rank); 0 for an empty one.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or_default()
}

/// Median and quartiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// First quartile.
    pub low: f64,
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

impl Spread {
    /// Computes the quartiles of values in any order.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Self {
            low: percentile(&values, 0.25),
            median: percentile(&values, 0.5),
            high: percentile(&values, 0.75),
        }
    }

    /// `MEDIAN (LOW to HIGH)` with this number of decimal places.
    pub fn quartiles(&self, digits: usize) -> String {
        let Self { low, median, high } = self;
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}
