//! How times, counts and calls are said.

use crate::story::view::Call;

/// A duration in milliseconds, to be compared with others: `85 ms`, `9.5 s`, `2 m 5 s`.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 99.5 => format!("{ms:.0} ms"),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1000.0),
        ms => about(ms),
    }
}

/// A duration in milliseconds of which the size matters: `12 s`, `4 m`, `1 h 5 m`.
pub(super) fn about(ms: f64) -> String {
    let seconds = (ms / 1000.0).round() as u64;
    match seconds {
        0 => format!("{ms:.0} ms"),
        1..=59 | 61..=99 => format!("{seconds} s"),
        60 | 100..3600 => with_rest(seconds, 60, ["m", "s"]),
        _ => with_rest(seconds / 60, 60, ["h", "m"]),
    }
}

fn with_rest(value: u64, unit: u64, names: [&str; 2]) -> String {
    match (value / unit, value % unit) {
        (whole, 0) => format!("{whole} {}", names[0]),
        (whole, rest) => format!("{whole} {} {rest} {}", names[0], names[1]),
    }
}

/// `once`, `twice`, `3 times`.
pub(super) fn times(n: usize) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// What a call does to what: `CreateContainer of app`.
pub(super) fn subject(call: &Call) -> String {
    let of = match &*call.method {
        "PullImage" => call.image.as_deref(),
        _ => call.container.as_deref(),
    };
    match of {
        Some(of) if !of.is_empty() => format!("{} of {of}", call.method),
        _ => call.method.clone(),
    }
}

/// Who set the deadline or hung up.
pub(super) fn caller(call: &Call) -> &'static str {
    match &*call.client {
        "kubelet" => "kubelet",
        "crictl" => "crictl",
        _ => "caller",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        for (ms, exact, rough) in [
            (0.4, "0 ms", "0 ms"),
            (85.0, "85 ms", "85 ms"),
            (200.0, "0.2 s", "200 ms"),
            (9_500.0, "9.5 s", "10 s"),
            (2_000.0, "2.0 s", "2 s"),
            (60_000.0, "60.0 s", "1 m"),
            (90_000.0, "90.0 s", "90 s"),
            (99_990.0, "1 m 40 s", "1 m 40 s"),
            (240_000.0, "4 m", "4 m"),
            (3_900_000.0, "1 h 5 m", "1 h 5 m"),
        ] {
            assert_eq!(time(ms), exact, "{ms}");
            assert_eq!(about(ms), rough, "{ms}");
        }
    }
}
