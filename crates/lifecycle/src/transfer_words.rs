//! What a download says while it runs and afterwards: how much has come, from whom, and how fast.

use std::time::Duration;

use criscope_cri::call::transfer::TransferReading;
use criscope_cri::units;

/// A download without a byte for this time is shown as waiting. TCP repeats a lost packet several times in it.
const SILENCE_TOLD_AFTER: Duration = Duration::from_secs(5);

/// A rate over less than this time says nothing.
const RATE_KNOWN_AFTER: Duration = Duration::from_secs(1);

/// The words on a step that receives something from a server. `took`: since the step began; `is_going_on`: it has not ended.
pub(crate) fn transfer_words(
    reading: &TransferReading,
    took: Duration,
    is_going_on: bool,
) -> String {
    let TransferReading {
        server,
        bytes,
        expected,
        kept,
        idle,
        ..
    } = reading;
    let is_silent = *idle >= SILENCE_TOLD_AFTER;
    let silence = units::spoken(*idle);
    if !reading.is_answered && is_silent {
        let answers = if is_going_on {
            "has not answered"
        } else {
            "did not answer"
        };
        return format!(
            "{server} {answers} for {silence}{}",
            so_far(*bytes, *expected)
        );
    }
    if is_silent {
        return format!(
            "no byte from {server} for {silence}{}",
            so_far(*bytes, *expected)
        );
    }
    if *expected == 0 {
        return format!("from {server}");
    }
    let mut words = amount(*bytes, *expected) + &format!(" from {server}");
    words += &rate(bytes - kept, expected - kept, took);
    if !is_going_on && reading.longest_pause >= SILENCE_TOLD_AFTER {
        let pause = units::spoken(reading.longest_pause);
        words += &format!(", at one time no byte for {pause}");
    }
    words
}

/// `, 1.0 MiB/s, 9 s left`; empty if it is too early to say.
pub(crate) fn rate(bytes: u64, expected: u64, took: Duration) -> String {
    if took < RATE_KNOWN_AFTER || bytes == 0 {
        return String::new();
    }
    let per_second = u128::from(bytes) * 1000 / took.as_millis();
    let per_second = u64::try_from(per_second).unwrap_or(u64::MAX).max(1);
    let mut words = format!(", {}/s", units::bytes(per_second));
    // Less than a second is over before it is read.
    let left = expected.saturating_sub(bytes) / per_second;
    if left > 0 {
        let left = units::spoken(Duration::from_secs(left));
        words += &format!(", {left} left at this rate");
    }
    words
}

/// `1.0 MiB of 4.0 MiB`, or the whole.
fn amount(bytes: u64, expected: u64) -> String {
    match expected {
        0 => units::bytes(bytes),
        expected if expected == bytes => units::bytes(bytes),
        expected => format!("{} of {}", units::bytes(bytes), units::bytes(expected)),
    }
}

/// What has come before the silence, as a suffix.
fn so_far(bytes: u64, expected: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(", after {}", amount(bytes, expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_says_whom_it_waits_for_and_how_fast_it_is() {
        let reading = TransferReading {
            server: "r.example:5000".into(),
            kept: 0,
            bytes: 1 << 20,
            expected: 4 << 20,
            idle: Duration::from_secs(42),
            longest_pause: Duration::from_secs(42),
            is_answered: true,
        };
        let took = Duration::from_secs(2);
        assert_eq!(
            transfer_words(&reading, took, true),
            "no byte from r.example:5000 for 42 s, after 1.0 MiB of 4.0 MiB"
        );
        let unanswered = TransferReading {
            bytes: 0,
            is_answered: false,
            ..reading.clone()
        };
        assert_eq!(
            transfer_words(&unanswered, took, true),
            "r.example:5000 has not answered for 42 s"
        );
        assert_eq!(
            transfer_words(&unanswered, took, false),
            "r.example:5000 did not answer for 42 s"
        );
        let going_on = TransferReading {
            idle: Duration::from_millis(4999),
            ..reading
        };
        assert_eq!(
            transfer_words(&going_on, took, true),
            "1.0 MiB of 4.0 MiB from r.example:5000, 512.0 KiB/s, 6 s left at this rate"
        );
        let done = TransferReading {
            bytes: 4 << 20,
            ..going_on
        };
        assert_eq!(
            transfer_words(&done, Duration::from_secs(50), false),
            "4.0 MiB from r.example:5000, 81.9 KiB/s, at one time no byte for 42 s"
        );
        let of_manifest = TransferReading {
            expected: 0,
            ..done
        };
        assert_eq!(
            transfer_words(&of_manifest, took, true),
            "from r.example:5000"
        );
    }
}
