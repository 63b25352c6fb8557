//! Timestamps in file names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use criscope_cri::units;

/// Time since 1970; zero for earlier times.
pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// `20260131T235959.123Z`: names sort by time.
pub(super) fn stamp(time: SystemTime) -> String {
    units::file_stamp(since_epoch(time))
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
        let date = |day: u64| {
            let text = stamp(UNIX_EPOCH + Duration::from_secs(day * 86_400));
            let number = |at: std::ops::Range<usize>| text[at].parse::<u32>().expect("digits");
            (number(0..4), number(4..6), number(6..8))
        };
        let mut last = date(0);
        for day in 1..100_000 {
            let next = date(day);
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
