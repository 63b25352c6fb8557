//! A time of day as it stands in the name of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::units::civil;

const DAY: u64 = 86_400;

/// Since 1970; zero before.
pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// `20260131T235959.123Z` (ISO 8601, basic format, UTC): names sort as times do.
pub(super) fn stamp(time: SystemTime) -> String {
    let since = since_epoch(time);
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let of = |millis| stamp(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(of(0), "19700101T000000.000Z");
        assert_eq!(of(951_827_696_789), "20000229T123456.789Z");
        assert_eq!(of(1_709_251_199_999), "20240229T235959.999Z");
        assert_eq!(of(1_709_251_200_000), "20240301T000000.000Z");
        assert_eq!(of(4_107_542_400_000), "21000301T000000.000Z");
        assert_eq!(of(4_107_542_399_000), "21000228T235959.000Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil(0);
        for day in 1..100_000 {
            let next = civil(day);
            let (year, month, of_month) = last;
            let follows = [
                (year, month, of_month + 1),
                (year, month + 1, 1),
                (year + 1, 1, 1),
            ];
            assert!(follows.contains(&next), "{last:?} {next:?}");
            last = next;
        }
    }
}
