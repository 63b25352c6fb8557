//! Durations in arguments.

use std::time::Duration;

/// The syntax of durations.
const DURATION_SYNTAX: &str = "write 500ms, 60s, 2m or 1h";

/// A whole positive number with `ms`, `s`, `m` or `h`, as in the configuration.
///
/// # Errors
/// If the text has another form, or the time is zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a duration: {DURATION_SYNTAX}"))?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3600)),
        _ => return Err(format!("{text:?} has an unknown unit: {DURATION_SYNTAX}")),
    };
    if time.is_zero() {
        Err(format!("{text:?} is zero: {DURATION_SYNTAX}"))
    } else {
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for bad in [
            "",
            "5",
            "s",
            "-1s",
            "1d",
            "1.5s",
            "99999999999999999999s",
            "0s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
