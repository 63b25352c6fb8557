//! Durations: a whole number and a unit.

use std::time::Duration;

use super::{UnparsedValue, ValueError, ValueKind, quoted};

/// Units from large to small.
const TIME_UNITS_MS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration between two limits.
#[derive(Clone, Copy, Debug)]
pub struct BoundedDuration {
    /// The shortest that is accepted.
    pub least: Duration,
    /// The longest that is accepted.
    pub most: Duration,
}

impl BoundedDuration {
    /// From the shortest to the longest that is accepted.
    pub const fn between(least: Duration, most: Duration) -> Self {
        Self { least, most }
    }
}

/// So many milliseconds.
pub const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// So many seconds.
pub const fn secs(number: u64) -> Duration {
    Duration::from_secs(number)
}

impl ValueKind for BoundedDuration {
    type Value = Duration;

    fn words(&self) -> String {
        "a duration such as \"500ms\", \"10s\", \"2m\" or \"1h\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Duration, ValueError> {
        if let UnparsedValue::Integer(number) = raw {
            return Err(ValueError::NoUnit(*number));
        }
        let duration = parse(raw.text(self)?).ok_or_else(|| ValueError::Type {
            expected: self.words(),
            found: raw.found(),
        })?;
        if duration < self.least || duration > self.most {
            return Err(ValueError::Range {
                found: raw.found(),
                least: show(self.least),
                most: show(self.most),
            });
        }
        Ok(duration)
    }

    fn show(&self, value: &Duration) -> String {
        quoted(show(*value))
    }
}

fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = TIME_UNITS_MS
        .iter()
        .find(|(name, _)| *name == unit.trim_start())?;
    let number: u64 = number.parse().ok()?;
    number.checked_mul(*millis).map(Duration::from_millis)
}

/// Formats it in the largest unit that divides it.
fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (name, unit) in TIME_UNITS_MS {
        let unit = u128::from(unit);
        if millis >= unit && millis.is_multiple_of(unit) {
            return format!("{}{name}", millis / unit);
        }
    }
    "0s".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: BoundedDuration = BoundedDuration {
        least: Duration::ZERO,
        most: Duration::from_secs(3600),
    };

    #[test]
    fn reads_what_it_writes() {
        for text in ["500ms", "10s", "2m", "1h", "1500ms", "90s", "0s"] {
            let duration = ANY.read(&UnparsedValue::Text(text)).expect(text);
            assert_eq!(ANY.show(&duration), format!("\"{text}\""));
        }
        assert_eq!(
            ANY.read(&UnparsedValue::Text("60s")),
            Ok(Duration::from_secs(60))
        );
        assert_eq!(
            ANY.read(&UnparsedValue::Text("7 s")),
            Ok(Duration::from_secs(7))
        );
    }

    #[test]
    fn refuses_what_may_mean_anything() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "10 seconds",
            "1m30s",
            "99999999999999999999h",
            "18446744073709551615h",
        ] {
            assert!(ANY.read(&UnparsedValue::Text(text)).is_err(), "{text}");
        }
        assert_eq!(
            ANY.read(&UnparsedValue::Integer(10))
                .expect_err("refused")
                .to_string(),
            "10 has no unit; write \"10s\" or \"10ms\""
        );
        assert_eq!(
            ANY.read(&UnparsedValue::Text("2h"))
                .expect_err("refused")
                .to_string(),
            "\"2h\" is out of range; it must be from 0s to 1h"
        );
    }
}
