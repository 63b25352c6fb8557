//! Numbers as they stand in tables.

/// A duration of so many milliseconds, in the unit that fits: `85 us`, `12.3 ms`, `4.56 s`, `12 min`.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0} us", ms * 1e3),
        ms if ms < 1e3 => format!("{ms:.1} ms"),
        ms if ms < 6e4 => format!("{:.2} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 6e4),
    }
}

/// A round duration of so many microseconds, such as the bound of a bucket: `0`, `10 us`, `100 ms`, `2 min`.
pub(super) fn bound(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        us if us < 1_000 => format!("{us} us"),
        us if us < 1_000_000 => format!("{} ms", us / 1_000),
        us if us % 60_000_000 > 0 => format!("{} s", us / 1_000_000),
        us => format!("{} min", us / 60_000_000),
    }
}

/// A duration, or nothing.
pub(super) fn time_if(ms: Option<f64>) -> String {
    ms.map(time).unwrap_or_default()
}

/// A count; nothing for none, so that what is there is seen.
pub(super) fn count(n: u64) -> String {
    match n {
        0 => String::new(),
        n => n.to_string(),
    }
}

/// How long ago that was, seen from `now`; both in microseconds since 1970.
pub(super) fn ago(now_us: u64, then_us: u64) -> String {
    format!("{} ago", time(now_us.saturating_sub(then_us) as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = [0.0, 0.085, 12.34, 999.9, 4560.0, 720_000.0].map(time);
        assert_eq!(
            shown,
            ["0 us", "85 us", "12.3 ms", "999.9 ms", "4.56 s", "12 min"]
        );
        let shown = [0, 10, 1_000, 100_000, 100_000_000, 120_000_000].map(bound);
        assert_eq!(shown, ["0", "10 us", "1 ms", "100 ms", "100 s", "2 min"]);
        assert_eq!(ago(5_000_000, 3_000_000), "2.00 s ago");
    }
}
