//! Sizes in bytes, counts and shares.

use super::{UnparsedValue, ValueError, ValueKind, quoted};

const SIZE_UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A number of bytes between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct ByteCount {
    /// The smallest that is accepted.
    pub least: usize,
    /// The largest that is accepted.
    pub most: usize,
}

impl ByteCount {
    /// From the smallest to the largest that is accepted.
    pub const fn between(least: usize, most: usize) -> Self {
        Self { least, most }
    }
}

impl ValueKind for ByteCount {
    type Value = usize;

    fn words(&self) -> String {
        "a size such as \"16MiB\" (KiB, MiB, GiB), or a number of bytes".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<usize, ValueError> {
        let bytes = match raw {
            UnparsedValue::Integer(number) => {
                Some(usize::try_from(*number).unwrap_or(if *number < 0 { 0 } else { usize::MAX }))
            }
            UnparsedValue::Text(text) => parse(text)?,
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| ValueError::Type {
            expected: self.words(),
            found: raw.found(),
        })?;
        if bytes < self.least || bytes > self.most {
            return Err(ValueError::Range {
                found: raw.found(),
                least: show(self.least),
                most: show(self.most),
            });
        }
        Ok(bytes)
    }

    fn show(&self, value: &usize) -> String {
        let text = show(*value);
        if text.ends_with('B') {
            quoted(text)
        } else {
            text
        }
    }
}

fn parse(text: &str) -> Result<Option<usize>, ValueError> {
    let Some(digits) = text.find(|c: char| !c.is_ascii_digit()) else {
        return Ok(text.parse().ok());
    };
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let Ok(number) = number.parse::<usize>() else {
        return Ok(None);
    };
    if let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
        return Ok(number.checked_mul(*factor));
    }
    // "MB" is ambiguous between 10^6 and 2^20; limits must not be.
    let letter = unit.chars().next().unwrap_or_default();
    let meant = SIZE_UNITS
        .iter()
        .find(|(name, _)| name.starts_with(letter.to_ascii_uppercase()));
    match meant {
        Some((name, _)) if unit.len() <= 2 || unit.eq_ignore_ascii_case(name) => {
            Err(ValueError::AmbiguousUnit {
                found: format!("{text:?}"),
                meant: format!("{number}{name}"),
            })
        }
        _ => Ok(None),
    }
}

fn show(bytes: usize) -> String {
    for (name, unit) in SIZE_UNITS {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// A whole number between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct BoundedNumber {
    /// The smallest that is accepted.
    pub least: usize,
    /// The largest that is accepted.
    pub most: usize,
}

impl BoundedNumber {
    /// From the smallest to the largest that is accepted.
    pub const fn between(least: usize, most: usize) -> Self {
        Self { least, most }
    }
}

impl ValueKind for BoundedNumber {
    type Value = usize;

    fn words(&self) -> String {
        "a whole number".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<usize, ValueError> {
        let UnparsedValue::Integer(number) = raw else {
            return Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            });
        };
        usize::try_from(*number)
            .ok()
            .filter(|count| (self.least..=self.most).contains(count))
            .ok_or_else(|| ValueError::Range {
                found: raw.found(),
                least: self.least.to_string(),
                most: self.most.to_string(),
            })
    }

    fn show(&self, value: &usize) -> String {
        value.to_string()
    }
}

/// The id of a user.
#[derive(Clone, Copy, Debug)]
pub struct UserIdNumber;

impl UserIdNumber {
    /// The kernel reserves the largest number for "no user".
    const IDS: BoundedNumber = BoundedNumber::between(0, u32::MAX as usize - 1);
}

impl ValueKind for UserIdNumber {
    type Value = u32;

    fn words(&self) -> String {
        "the id of a user, a whole number".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<u32, ValueError> {
        let id = Self::IDS.read(raw)?;
        u32::try_from(id).map_err(|_| ValueError::Type {
            expected: self.words(),
            found: raw.found(),
        })
    }

    fn show(&self, value: &u32) -> String {
        value.to_string()
    }
}

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct RatioNumber;

impl ValueKind for RatioNumber {
    type Value = f64;

    fn words(&self) -> String {
        "a number from 0.0 to 1.0".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<f64, ValueError> {
        let share = match raw {
            UnparsedValue::Float(share) => *share,
            UnparsedValue::Integer(0) => 0.0,
            UnparsedValue::Integer(1) => 1.0,
            _ => f64::NAN,
        };
        // NaN is outside every range.
        if !(0.0..=1.0).contains(&share) {
            return Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            });
        }
        Ok(share)
    }

    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: ByteCount = ByteCount {
        least: 1024,
        most: 1 << 30,
    };

    #[test]
    fn sizes_read_what_they_write() {
        for (text, bytes) in [("16MiB", 16 << 20), ("64KiB", 64 << 10), ("1GiB", 1 << 30)] {
            assert_eq!(ANY.read(&UnparsedValue::Text(text)), Ok(bytes));
            assert_eq!(ANY.show(&bytes), format!("\"{text}\""));
        }
        assert_eq!(ANY.read(&UnparsedValue::Integer(1025)), Ok(1025));
        assert_eq!(ANY.read(&UnparsedValue::Text("2048")), Ok(2048));
        assert_eq!(ANY.show(&1025), "1025");
    }

    #[test]
    fn sizes_explain_what_they_refuse() {
        let message = |raw| ANY.read(&raw).expect_err("refused").to_string();
        for (text, meant) in [
            ("16MB", "16MiB"),
            ("16M", "16MiB"),
            ("4kb", "4KiB"),
            ("1gib", "1GiB"),
        ] {
            assert_eq!(
                message(UnparsedValue::Text(text)),
                format!("{text:?} is ambiguous; write {meant:?}")
            );
        }
        assert_eq!(
            message(UnparsedValue::Integer(-1)),
            "-1 is out of range; it must be from 1KiB to 1GiB"
        );
        for text in ["", "MiB", "-1MiB", "1.5MiB", "12 parsecs", "99999999999GiB"] {
            assert!(ANY.read(&UnparsedValue::Text(text)).is_err(), "{text}");
        }
        assert!(ANY.read(&UnparsedValue::Boolean(true)).is_err());
    }

    #[test]
    fn ids_of_users_are_numbers_but_the_reserved_one() {
        for uid in [0, 65534, u32::MAX - 1] {
            assert_eq!(
                UserIdNumber.read(&UnparsedValue::Integer(uid.into())),
                Ok(uid)
            );
            assert_eq!(UserIdNumber.show(&uid), uid.to_string());
        }
        for raw in [
            UnparsedValue::Integer(-1),
            UnparsedValue::Integer(u32::MAX.into()),
            UnparsedValue::Integer(1 << 32),
            UnparsedValue::Text("1000"),
        ] {
            UserIdNumber.read(&raw).expect_err("no id");
        }
    }

    #[test]
    fn shares_are_between_nothing_and_all() {
        assert_eq!(RatioNumber.read(&UnparsedValue::Integer(1)), Ok(1.0));
        assert_eq!(RatioNumber.read(&UnparsedValue::Float(0.25)), Ok(0.25));
        for raw in [
            UnparsedValue::Float(1.01),
            UnparsedValue::Float(f64::NAN),
            UnparsedValue::Integer(2),
            UnparsedValue::Text("1"),
        ] {
            assert!(RatioNumber.read(&raw).is_err(), "{raw:?}");
        }
    }
}
