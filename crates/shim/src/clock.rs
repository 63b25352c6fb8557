//! Timestamps in the kubelet's format, without a library.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-01-02T03:04:05.000000006Z`.
pub(crate) type Stamp = [u8; 30];

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Formats a time as RFC 3339 with nanoseconds, in UTC.
pub(crate) fn stamp(nanos: u64) -> Stamp {
    let secs = nanos / 1_000_000_000;
    let (year, month, day) = date(secs / 86_400);
    let mut out = *b"0000-00-00T00:00:00.000000000Z";
    write_digits(&mut out[0..4], year);
    write_digits(&mut out[5..7], month);
    write_digits(&mut out[8..10], day);
    write_digits(&mut out[11..13], secs / 3600 % 24);
    write_digits(&mut out[14..16], secs / 60 % 60);
    write_digits(&mut out[17..19], secs % 60);
    write_digits(&mut out[20..29], nanos % 1_000_000_000);
    out
}

/// Fills `digits` with a decimal number, with leading zeros.
fn write_digits(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Returns the date of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (
        year_of_era + days / 146_097 * 400 + u64::from(month <= 2),
        month,
        day,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_formatted() {
        let text = |secs: u64| {
            String::from_utf8(stamp(secs * 1_000_000_000 + 42).to_vec()).expect("ascii")
        };
        assert_eq!(text(0), "1970-01-01T00:00:00.000000042Z");
        assert_eq!(text(951_782_399), "2000-02-28T23:59:59.000000042Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00.000000042Z");
        assert_eq!(text(4_107_542_399), "2100-02-28T23:59:59.000000042Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00.000000042Z");
    }
}
