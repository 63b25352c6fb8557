//! Shares of caches and of bandwidth.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::file::numbers;

/// A share of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheShare {
    /// A percentage, from the lower end.
    Percent(u64),
    /// From one percentage to another.
    Range(u64, u64),
    /// Bits, counted from the lowest one that is shared.
    Bits(u64),
}

impl CacheShare {
    /// Parses `50` or `20-50`.
    fn from_percent(text: &str) -> Option<Self> {
        match text.split_once('-') {
            None => percent(text).map(Self::Percent),
            Some((low, high)) => {
                let (low, high) = (percent(low)?, percent(high)?);
                (low <= high).then_some(Self::Range(low, high))
            }
        }
    }
}

impl FromStr for CacheShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = match text.strip_suffix('%') {
            Some(percent) => Self::from_percent(percent),
            None => mask(text).map(Self::Bits),
        };
        match share {
            Some(Self::Bits(bits)) if !is_contiguous(bits) => {
                Err(format!("{text:?} is not one block of bits"))
            }
            Some(share) => Ok(share),
            None => Err(format!(
                "{text:?} is no share of a cache: a percentage (50%), a range of it (20-50%), a mask or bits (0-7)"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for CacheShare {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Returns whether a mask is one block of bits, as the hardware requires.
pub(super) fn is_contiguous(mask: u64) -> bool {
    mask != 0 && {
        let from_zero = mask >> mask.trailing_zeros();
        from_zero & from_zero.wrapping_add(1) == 0
    }
}

/// A block of bits, from the lowest one.
pub(super) fn block(bits: u64) -> u64 {
    match bits {
        64.. => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

impl CacheShare {
    /// Returns the bits that this share of `base` is, at least `least` of them.
    ///
    /// # Errors
    /// If `base` has not that many bits, or not these.
    pub(super) fn mask(self, base: u64, least: u64) -> Result<u64, String> {
        let width = u64::from(base.count_ones());
        if !is_contiguous(base) || width < least {
            return Err(format!(
                "{self} of the bits {base:#x} is less than {least} bits"
            ));
        }
        let first = base.trailing_zeros();
        let (low, high) = match self {
            Self::Bits(bits) => {
                let fits = bits.leading_zeros() >= first && (bits << first) & !base == 0;
                return if fits && u64::from(bits.count_ones()) >= least {
                    Ok(bits << first)
                } else {
                    Err(format!(
                        "{self} are not bits of {base:#x} from its low end, at least {least}"
                    ))
                };
            }
            Self::Percent(high) => (1, high.max(1)),
            Self::Range(low, high) => (low.max(1), high.max(1)),
        };
        // Percentages from 1 to 100 become numbers of bits from 0.
        let (mut low, mut high) = ((low - 1) * width / 100, (high - 1) * width / 100);
        let missing = least.saturating_sub(high - low + 1);
        // `base` is wide enough for both.
        let below = missing.min(low);
        low -= below;
        high += missing - below;
        Ok(block(high - low + 1) << (low + u64::from(first)))
    }
}

impl fmt::Display for CacheShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Range(low, high) => write!(f, "{low}-{high}%"),
            Self::Bits(bits) => write!(f, "{bits:#x}"),
        }
    }
}

fn percent(text: &str) -> Option<u64> {
    text.parse().ok().filter(|percent| *percent <= 100)
}

/// Parses a mask with the prefix `0x`, or a list of bits.
fn mask(text: &str) -> Option<u64> {
    if let Some(mask) = text.strip_prefix("0x") {
        return u64::from_str_radix(mask, 16).ok();
    }
    let bits = numbers(text).ok()?;
    bits.into_iter().try_fold(0, |mask, bit| {
        Some(mask | 1_u64.checked_shl(u32::try_from(bit).ok()?)?)
    })
}

/// A share of bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bandwidth {
    /// A part of the total bandwidth.
    Percent(u64),
    /// Megabytes per second, if resctrl is mounted with `mba_MBps`.
    Mbps(u64),
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let percent = text.strip_suffix('%').and_then(percent);
        let mbps = text.strip_suffix("MBps");
        let mbps = mbps.and_then(|text| text.parse::<u32>().ok());
        let parsed = percent.map(Self::Percent);
        parsed
            .or(mbps.map(|mbps| Self::Mbps(mbps.into())))
            .ok_or_else(|| {
                let text =
                    format!("{text:?} is no bandwidth: a percentage (50%) or a rate in MBps");
                serde::de::Error::custom(text)
            })
    }
}
