//! Parses the limits of requests that registries tell with their answers: `RateLimit-Limit` and `RateLimit-Remaining` as Docker Hub sends
//! them (`100;w=21600`), `RateLimit` of the IETF's draft (`"default";r=50;t=30`, and `limit=100, remaining=50, reset=30` of its earlier
//! versions), and `X-RateLimit-Remaining`.

use std::time::Duration;

use reqwest::header::HeaderMap;

use super::words::{clean, header_text};
use crate::observer::RateLimit;

/// Larger numbers are no limits of requests.
const MAX_COUNT: u64 = 1_000_000_000_000;
/// Longer times are no windows of a limit.
const MAX_SECONDS: u64 = 366 * 86_400;
/// Most items of a list, and most characters of a source.
const MAX_ITEMS: usize = 16;
const MAX_SOURCE: usize = 64;

/// The limit that an answer tells; of several the one with the fewest requests left.
pub(super) fn parse(headers: &HeaderMap) -> Option<RateLimit> {
    let found = read_draft(headers)
        .or_else(|| read_pair(headers, "ratelimit"))
        .or_else(|| read_pair(headers, "x-ratelimit"))
        .or_else(|| read_pair(headers, "x-rate-limit"))?;
    let sources = ["docker-ratelimit-source", "ratelimit-source"];
    let sources = sources.iter().map(|name| header_text(headers, *name));
    let mut sources = sources.map(|source| clean(&source, MAX_SOURCE));
    Some(RateLimit {
        source: sources.find(|source| !source.is_empty()),
        ..found
    })
}

/// All values of a header, as one list.
fn list(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values
        .take(MAX_ITEMS)
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    values.join(",")
}

/// A number that can be one of requests.
fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.filter(|number| *number <= MAX_COUNT)
}

fn seconds(text: &str) -> Option<Duration> {
    let number = count(text).filter(|number| *number <= MAX_SECONDS);
    number.map(Duration::from_secs)
}

/// The value of a parameter, as in `100;w=21600`.
fn parameter<'a>(item: &'a str, name: &str) -> Option<&'a str> {
    value(item.split(';').skip(1), name)
}

/// The value of the first `NAME=VALUE` with this name.
fn value<'a>(mut parts: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    parts.find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// `PREFIX-remaining` and `PREFIX-limit`.
fn read_pair(headers: &HeaderMap, prefix: &str) -> Option<RateLimit> {
    let remaining = list(headers, &format!("{prefix}-remaining"));
    let remaining = remaining.split(',').take(MAX_ITEMS);
    let of_least = remaining
        .filter_map(|item| {
            let number = item.split(';').next()?;
            Some((count(number)?, item.to_owned()))
        })
        .min_by_key(|(number, _)| *number);
    let (remaining, item) = of_least?;
    let limits = list(headers, &format!("{prefix}-limit"));
    let limit_item = limits.split(',').next().unwrap_or_default();
    let limit = limit_item.split(';').next().and_then(count);
    let windows = [&item, limit_item].map(|item| parameter(item, "w"));
    let window = windows.into_iter().flatten().find_map(seconds);
    Some(RateLimit {
        remaining,
        limit,
        window,
        source: None,
    })
}

/// `RateLimit`, and `RateLimit-Policy` with its quotas.
fn read_draft(headers: &HeaderMap) -> Option<RateLimit> {
    let all = list(headers, "ratelimit");
    let policies = list(headers, "ratelimit-policy");
    let items = all.split(',').take(MAX_ITEMS);
    let limits = items.filter_map(|item| read_item(item, &policies));
    let least = limits.min_by_key(|limit| limit.remaining);
    least.or_else(|| read_fields(&all))
}

/// `"default";r=50;t=30`
fn read_item(item: &str, policies: &str) -> Option<RateLimit> {
    let name = item.split(';').next().unwrap_or_default().trim();
    let mut policies = policies.split(',').take(MAX_ITEMS);
    let policy =
        policies.find(|policy| policy.split(';').next().unwrap_or_default().trim() == name);
    let policy = policy.unwrap_or_default();
    let window = parameter(policy, "w").or_else(|| parameter(item, "t"));
    Some(RateLimit {
        remaining: count(parameter(item, "r")?)?,
        limit: parameter(policy, "q").and_then(count),
        window: window.and_then(seconds),
        source: None,
    })
}

/// `limit=100, remaining=50, reset=30`
fn read_fields(text: &str) -> Option<RateLimit> {
    Some(RateLimit {
        remaining: count(field(text, "remaining")?)?,
        limit: field(text, "limit").and_then(count),
        window: field(text, "reset").and_then(seconds),
        source: None,
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    value(text.split(',').take(MAX_ITEMS), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &str)]) -> Option<RateLimit> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().expect("a header"));
        }
        parse(&all)
    }

    fn limit(remaining: u64, limit: Option<u64>, window: Option<u64>) -> Option<RateLimit> {
        Some(RateLimit {
            remaining,
            limit,
            window: window.map(Duration::from_secs),
            source: None,
        })
    }

    #[test]
    fn the_forms_in_use() {
        let hub = [
            ("ratelimit-limit", "100;w=21600"),
            ("ratelimit-remaining", "76;w=21600"),
        ];
        assert_eq!(of(&hub), limit(76, Some(100), Some(21600)));
        let with_source = of(&[hub[0], hub[1], ("docker-ratelimit-source", "192.0.2.1")]);
        let shown = with_source.expect("a limit").to_string();
        assert_eq!(
            shown,
            "76 of 100 requests left in 6 h, counted for 192.0.2.1"
        );
        let draft = ("ratelimit", "\"default\";r=50;t=30");
        assert_eq!(of(&[draft]), limit(50, None, Some(30)));
        let policy = ("ratelimit-policy", "\"x\";q=5, \"default\";q=100;w=60");
        assert_eq!(of(&[draft, policy]), limit(50, Some(100), Some(60)));
        let two = ("ratelimit", "\"a\";r=50;t=30, \"b\";r=3");
        assert_eq!(of(&[two]), limit(3, None, None));
        let earlier = ("ratelimit", "limit=100, remaining=5, reset=30");
        assert_eq!(of(&[earlier]), limit(5, Some(100), Some(30)));
        let draft_3 = [
            ("ratelimit-limit", "10, 10;w=1, 50;w=60"),
            ("ratelimit-remaining", "7"),
        ];
        assert_eq!(of(&draft_3), limit(7, Some(10), None));
        let github = [
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", " 59 "),
        ];
        assert_eq!(of(&github), limit(59, Some(60), None));
        assert_eq!(of(&[("x-rate-limit-remaining", "1")]), limit(1, None, None));
    }

    #[test]
    fn absurd_numbers_are_no_limits() {
        assert_eq!(of(&[]), None);
        for value in [
            "-1",
            "",
            "x",
            "1.5",
            "+3",
            "99999999999999999999",
            "9999999999999",
            ";w=1",
            "1e3",
        ] {
            assert_eq!(of(&[("ratelimit-remaining", value)]), None, "{value}");
            assert_eq!(
                of(&[("ratelimit", &format!("\"a\";r={value}"))]),
                None,
                "{value}"
            );
        }
        // What is right of it still counts.
        let limits = [
            ("ratelimit-remaining", "5;w=-3"),
            ("ratelimit-limit", "-100;w=99999999999"),
        ];
        assert_eq!(of(&limits), limit(5, None, None));
        let one_is_right = [("ratelimit", "nonsense"), ("ratelimit-remaining", "2")];
        assert_eq!(of(&one_is_right), limit(2, None, None));
        let many = vec!["\"a\";r=1"; 10_000].join(",");
        assert_eq!(of(&[("ratelimit", &many)]), limit(1, None, None));
    }

    #[test]
    fn little_is_a_tenth_or_ten() {
        for (remaining, limit, is_low) in [
            (11, Some(100), false),
            (10, Some(100), true),
            (20, Some(200), true),
            (21, Some(200), false),
            (0, Some(0), true),
            (8, Some(10), false),
            (5, Some(10), true),
            (10, None, true),
            (11, None, false),
        ] {
            let told = RateLimit {
                remaining,
                limit,
                ..RateLimit::default()
            };
            assert_eq!(told.is_low(), is_low, "{told}");
        }
    }
}
