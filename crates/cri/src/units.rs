//! Durations, sizes and times of day for people, the same in the terminal, on pages and in sentences. Machine-readable
//! output (JSON, metrics, numeric fields of log lines and spans) has numbers, with the unit in the name.

pub mod times;

use std::num::NonZeroU8;
use std::time::Duration;

use time::UtcDateTime;
use time::format_description::well_known::Iso8601;
use time::format_description::well_known::iso8601::{Config, EncodedConfig, TimePrecision};

use self::times::UnixMicros;

/// A duration in at most eight characters: `0.42 ms`, `38.1 ms`, `183 ms`, `9.53 s`, `14.2 s`, `2m 05s`, `3h 12m`,
/// `5d 03h`.
pub fn duration(ms: f64) -> String {
    let ms = if ms.is_finite() { ms.max(0.0) } else { 0.0 };
    if ms < 9.995 {
        return format!("{ms:.2} ms");
    }
    if ms < 99.95 {
        return format!("{ms:.1} ms");
    }
    if ms < 999.5 {
        return format!("{ms:.0} ms");
    }
    let s = ms / 1e3;
    if s < 9.995 {
        return format!("{s:.2} s");
    }
    if s < 59.95 {
        return format!("{s:.1} s");
    }
    // At most some hundred million years.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    long(s.round() as u64)
}

/// A duration in a sentence, in seconds or more, with two significant digits: `0.04 s`, `1.7 s`, `42 s`, `1m 47s`, `2 min`, `3h 12m`,
/// `5d 3h`. Sentences have one scale, so there are no milliseconds.
pub fn spoken(time: Duration) -> String {
    let hundredths = (time.as_millis() + 5) / 10;
    let tenths = (time.as_millis() + 50) / 100;
    let s = time
        .as_secs()
        .saturating_add(u64::from(time.subsec_millis() >= 500));
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86_400);
    match s {
        _ if hundredths == 0 => "less than 0.01 s".to_owned(),
        _ if hundredths < 100 => format!("{} s", hundredths as f64 / 100.0),
        _ if tenths < 100 => format!("{} s", tenths as f64 / 10.0),
        0..60 => format!("{s} s"),
        60..600 if !s.is_multiple_of(60) => format!("{minutes}m {:02}s", s % 60),
        60..3600 => format!("{minutes} min"),
        3600..86_400 if !minutes.is_multiple_of(60) => format!("{hours}h {:02}m", minutes % 60),
        3600..86_400 => format!("{hours} h"),
        _ if !hours.is_multiple_of(24) => format!("{days}d {}h", hours % 24),
        _ => format!("{days} d"),
    }
}

/// A size with a binary unit: `512 B`, `4.0 KiB`, `31.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KiB", "MiB", "GiB"];
    let mut text = format!("{bytes} B");
    let mut value = bytes as f64;
    for unit in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        text = format!("{value:.1} {unit}");
    }
    text
}

/// Age in whole units: `now`, `12 s`, `5 min`, `3 h`, `2 d`.
pub fn ago(age: Duration) -> String {
    let s = age.as_secs();
    match s {
        0 => "now".to_owned(),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86_400 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// Age as a part of a sentence: `now`, `12 s ago`.
pub fn since(age: Duration) -> String {
    match ago(age).as_str() {
        "now" => "now".to_owned(),
        ago => format!("{ago} ago"),
    }
}

fn long(s: u64) -> String {
    match s {
        0..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {:02}h", s / 86_400, s / 3600 % 24),
    }
}

/// A time of day as RFC 3339 in UTC, to the millisecond: `2026-01-31T09:08:07.123Z`.
pub fn rfc3339(time: UnixMicros) -> String {
    date::<{ MILLIS.encode() }>(time.since(UnixMicros::EPOCH))
}

/// A time of day in UTC, to the second: `09:08:07`.
pub fn clock(time: UnixMicros) -> String {
    let s = time.since(UnixMicros::EPOCH).as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// Two times of day in UTC: `12:01 to 12:09`, with seconds if they are less than five minutes apart.
pub fn from_to(from: UnixMicros, to: UnixMicros) -> String {
    let length = match to.since(from).as_secs() {
        ..300 => "hh:mm:ss".len(),
        _ => "hh:mm".len(),
    };
    let (mut from, mut to) = (clock(from), clock(to));
    from.truncate(length);
    to.truncate(length);
    format!("{from} to {to}")
}

/// A time since 1970 for file names: `20260131T235959.123Z` (ISO 8601, basic format, UTC). Names sort by time.
pub fn file_stamp(since_1970: Duration) -> String {
    date::<{ MILLIS.set_use_separators(false).encode() }>(since_1970)
}

const MILLIS: Config = Config::DEFAULT.set_time_precision(TimePrecision::Second {
    decimal_digits: NonZeroU8::new(3),
});

/// Times after the year 9999 become its last moment.
fn date<const FORMAT: EncodedConfig>(since_1970: Duration) -> String {
    let nanos = i128::try_from(since_1970.as_nanos()).unwrap_or(i128::MAX);
    let time = UtcDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(UtcDateTime::MAX);
    // The only errors are years of more than four digits and a failing sink.
    time.format(&Iso8601::<FORMAT>).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        let shown = [
            0.0,
            0.424,
            9.994,
            9.996,
            38.14,
            99.96,
            183.2,
            999.6,
            9530.0,
            9996.0,
            14_210.0,
            59_960.0,
            125_000.0,
            11_520_000.0,
            442_800_000.0,
        ]
        .map(duration);
        assert_eq!(
            shown,
            [
                "0.00 ms", "0.42 ms", "9.99 ms", "10.0 ms", "38.1 ms", "100 ms", "183 ms",
                "1.00 s", "9.53 s", "10.0 s", "14.2 s", "1m 00s", "2m 05s", "3h 12m", "5d 03h",
            ]
        );
        assert_eq!(duration(f64::NAN), "0.00 ms");
        assert_eq!(duration(-1.0), "0.00 ms");
        assert!(!duration(f64::MAX).is_empty());
    }

    #[test]
    fn spoken_durations_have_two_digits_and_no_milliseconds() {
        let shown = [
            0,
            4,
            7,
            40,
            104,
            500,
            861,
            999,
            1000,
            1710,
            9940,
            9960,
            42_100,
            59_400,
            59_600,
            107_000,
            120_000,
            599_000,
            640_000,
            3_600_000,
            11_520_000,
            86_400_000,
            442_800_000,
        ]
        .map(|ms| spoken(Duration::from_millis(ms)));
        assert_eq!(
            shown,
            [
                "less than 0.01 s",
                "less than 0.01 s",
                "0.01 s",
                "0.04 s",
                "0.1 s",
                "0.5 s",
                "0.86 s",
                "1 s",
                "1 s",
                "1.7 s",
                "9.9 s",
                "10 s",
                "42 s",
                "59 s",
                "1 min",
                "1m 47s",
                "2 min",
                "9m 59s",
                "10 min",
                "1 h",
                "3h 12m",
                "1 d",
                "5d 3h",
            ]
        );
        assert!(!spoken(Duration::MAX).is_empty());
    }

    #[test]
    fn ages_are_whole() {
        let shown = [
            0,
            999_999,
            59_000_000,
            60_000_000,
            7_200_000_000,
            200_000_000_000,
        ]
        .map(|age| ago(Duration::from_micros(age)));
        assert_eq!(shown, ["now", "now", "59 s", "1 min", "2 h", "2 d"]);
        let (early, late) = (UnixMicros::EPOCH, UnixMicros::new(7_000_000));
        assert_eq!(ago(early.since(late)), "now", "a clock that was set back");
        assert_eq!(since(Duration::ZERO), "now");
        assert_eq!(since(Duration::from_secs(5)), "5 s ago");
    }

    #[test]
    fn a_span_of_the_day_has_seconds_if_it_is_short() {
        let at = |s: u64| UnixMicros::new(1_769_850_487_123_456 + s * 1_000_000);
        assert_eq!(from_to(at(0), at(480)), "09:08 to 09:16");
        assert_eq!(from_to(at(0), at(30)), "09:08:07 to 09:08:37");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = [
            0,
            951_782_399_999_999,
            951_782_400_000_000,
            1_769_850_487_123_456,
            4_107_542_400_000_000,
        ]
        .map(|micros| rfc3339(UnixMicros::new(micros)));
        assert_eq!(
            shown,
            [
                "1970-01-01T00:00:00.000Z",
                "2000-02-28T23:59:59.999Z",
                "2000-02-29T00:00:00.000Z",
                "2026-01-31T09:08:07.123Z",
                "2100-03-01T00:00:00.000Z",
            ]
        );
        assert!(!rfc3339(UnixMicros::MAX).is_empty());
    }
}
