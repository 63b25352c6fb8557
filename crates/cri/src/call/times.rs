//! Times in whole microseconds, the unit of the journal: their sums are exact.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serializer};

/// Microseconds of a duration.
pub fn micros_of(time: Duration) -> u64 {
    // A quarter, so that sums do not overflow.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

/// Microseconds since 1970.
pub fn unix_micros(time: SystemTime) -> u64 {
    micros_of(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration as microseconds.
pub(super) mod micros {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(micros_of(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// An optional duration.
pub(super) mod optional {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_u64(micros_of(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

/// A time of day as microseconds since 1970.
pub(super) mod unix {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &SystemTime,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(unix_micros(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SystemTime, D::Error> {
        u64::deserialize(deserializer).map(|micros| UNIX_EPOCH + Duration::from_micros(micros))
    }
}
