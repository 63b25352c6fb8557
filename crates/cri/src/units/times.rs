//! Instants and lengths in whole microseconds, the unit of the journal: their sums are exact.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, as a number of microseconds since 1970. Arithmetic saturates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMicros(u64);

impl UnixMicros {
    /// The begin of 1970. Stands for a time that is not known.
    pub const EPOCH: Self = Self(0);
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment that is this number of microseconds after [`Self::EPOCH`].
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// The moment that is this number of nanoseconds after [`Self::EPOCH`], as runtimes give times; the epoch if it is negative.
    pub fn from_nanos(nanos: i64) -> Self {
        Self(u64::try_from(nanos / 1000).unwrap_or(0))
    }

    /// The current time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// The number of microseconds since [`Self::EPOCH`].
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The time between both moments, in either order.
    pub const fn abs_diff(self, other: Self) -> Duration {
        Duration::from_micros(self.0.abs_diff(other.0))
    }

    /// The moment this long before; `None` before 1970.
    pub fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(micros_of(time)).map(Self)
    }
}

impl From<SystemTime> for UnixMicros {
    fn from(time: SystemTime) -> Self {
        Self(micros_of(
            time.duration_since(UNIX_EPOCH).unwrap_or_default(),
        ))
    }
}

impl From<UnixMicros> for SystemTime {
    fn from(time: UnixMicros) -> Self {
        UNIX_EPOCH + Duration::from_micros(time.0)
    }
}

impl Add<Duration> for UnixMicros {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(micros_of(time)))
    }
}

impl Sub<Duration> for UnixMicros {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(micros_of(time)))
    }
}

/// The number, without a unit.
impl fmt::Display for UnixMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Microseconds of a duration.
pub fn micros_of(time: Duration) -> u64 {
    // A quarter, so that sums do not overflow.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

/// A duration without its fraction of a microsecond.
pub fn whole_micros(time: Duration) -> Duration {
    Duration::from_micros(micros_of(time))
}

/// Milliseconds of a duration, with a resolution of a microsecond.
pub fn millis(time: Duration) -> f64 {
    micros_of(time) as f64 / 1000.0
}

/// Milliseconds of a duration, without their fraction.
pub fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as microseconds.
pub mod micros {
    use super::*;

    /// Writes a number of microseconds.
    ///
    /// # Errors
    /// Of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(micros_of(*time))
    }

    /// Reads a number of microseconds.
    ///
    /// # Errors
    /// For another type, or of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// The serde form of an optional duration: microseconds.
pub mod optional {
    use super::*;

    /// Writes a number of microseconds, or nothing.
    ///
    /// # Errors
    /// Of the serializer.
    pub fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_u64(micros_of(*time)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a number of microseconds, if there is one.
    ///
    /// # Errors
    /// For another type, or of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

/// A time of day as microseconds since 1970.
pub(crate) mod unix {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &SystemTime,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        UnixMicros::from(*time).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SystemTime, D::Error> {
        UnixMicros::deserialize(deserializer).map(SystemTime::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_and_keep_their_form() {
        let (early, late) = (UnixMicros::new(5), UnixMicros::new(1_000_005));
        assert_eq!(late.since(early), Duration::from_secs(1));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.abs_diff(late), Duration::from_secs(1));
        assert_eq!(early + Duration::from_secs(1), late);
        assert_eq!(early - Duration::from_secs(1), UnixMicros::EPOCH);
        assert_eq!(early.checked_sub(Duration::from_secs(1)), None);
        assert_eq!(UnixMicros::MAX + Duration::MAX, UnixMicros::MAX);
        assert_eq!(UnixMicros::from(SystemTime::from(late)), late);
        assert_eq!(serde_json::to_string(&late).expect("json"), "1000005");
        assert_eq!(millis(Duration::from_nanos(1_500_900)), 1.5);
    }
}
