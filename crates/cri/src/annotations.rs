//! The annotations that are read: when the kubelet saw a pod first, from where, and the grace period of its specification. The
//! kubelet adds the first two to every pod it accepts and sends them with RunPodSandbox, the third with CreateContainer. Only a
//! time, a word of a fixed list and a number leave this module; keys and values of annotations are compared where they lie and
//! never copied.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::serde_by_name;

/// The time at which the kubelet first saw the pod in its configuration, RFC 3339 with nanoseconds. A kubelet that was
/// restarted sees all pods anew.
const SEEN: &[u8] = b"kubernetes.io/config.seen";
/// Where the pod comes from.
const SOURCE: &[u8] = b"kubernetes.io/config.source";

/// The pod's `terminationGracePeriodSeconds`.
const GRACE_PERIOD: &[u8] = b"io.kubernetes.pod.terminationGracePeriod";

/// Longest value that is parsed: a time with nanoseconds and an offset takes 35 bytes.
const LONGEST: usize = 64;

/// What the kubelet says of a pod's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodOrigin {
    /// When this kubelet first saw the pod, in microseconds since 1970.
    pub seen_us: u64,
    /// Where it saw it.
    pub source: ConfigSource,
}

crate::named! {
    /// Where the kubelet has a pod from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(u8)]
    pub enum ConfigSource {
        /// The API server.
        Api = "api",
        /// A file: a static pod.
        File = "file",
        /// An URL: a static pod.
        Http = "http",
        /// It does not say, or says something else.
        #[default]
        Unknown = "unknown",
    }
}

impl ConfigSource {
    fn parse(value: &[u8]) -> Self {
        match value {
            b"api" => Self::Api,
            b"file" => Self::File,
            b"http" => Self::Http,
            _ => Self::Unknown,
        }
    }
}

serde_by_name!(ConfigSource);

/// The origin of the pod in a RunPodSandbox request; `None` if the request does not say when the pod was seen.
pub(super) fn origin(request: &[u8]) -> Option<PodOrigin> {
    let mut seen = None;
    let mut source = ConfigSource::Unknown;
    for config in fields(request, 1) {
        for entry in fields(config, 7) {
            match fields(entry, 1).last() {
                Some(SEEN) => seen = fields(entry, 2).last().and_then(micros),
                Some(SOURCE) => {
                    source = fields(entry, 2).last().map_or(source, ConfigSource::parse);
                }
                _ => {}
            }
        }
    }
    seen.map(|seen_us| PodOrigin { seen_us, source })
}

/// The grace period of the pod in a CreateContainer request, in seconds.
pub(super) fn grace_period(request: &[u8]) -> Option<u32> {
    let configs = fields(request, 2);
    let entries = configs.flat_map(|config| fields(config, 10));
    let mut values = entries.filter(|entry| fields(entry, 1).last() == Some(GRACE_PERIOD));
    let value = fields(values.next()?, 2).last()?;
    let is_number = (1..=10).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The length-delimited fields with this number, until the message ends or does not decode.
fn fields(mut message: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let (number, wire_type) = decode_key(&mut message).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, number, &mut message, DecodeContext::default()).ok()?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
            let (value, rest) = message.split_at_checked(length)?;
            message = rest;
            if number == wanted {
                return Some(value);
            }
        }
        None
    })
}

/// Microseconds since 1970.
fn micros(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.get(..value.len().min(LONGEST))?).ok()?;
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let since = SystemTime::from(time).duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::v1;
    use super::*;

    fn run(annotations: &[(&str, &str)]) -> Vec<u8> {
        let config = v1::PodSandboxConfig {
            hostname: "kubernetes.io/config.seen".into(),
            annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Default::default()
        };
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: "kata".into(),
        };
        request.encode_to_vec()
    }

    #[test]
    fn the_two_keys_are_read_and_no_other() {
        let of = |annotations: &[_]| origin(&run(annotations));
        let seen = (
            "kubernetes.io/config.seen",
            "2025-06-15T15:06:40.123456789Z",
        );
        let got = of(&[
            ("password", "hunter2"),
            seen,
            ("kubernetes.io/config.source", "api"),
        ]);
        let expected = PodOrigin {
            seen_us: 1_750_000_000_123_456,
            source: ConfigSource::Api,
        };
        assert_eq!(got, Some(expected));
        let source = ConfigSource::Unknown;
        assert_eq!(of(&[seen]), Some(PodOrigin { source, ..expected }));
        assert_eq!(of(&[("kubernetes.io/config.source", "api")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn times_of_any_zone_are_read_and_nothing_else() {
        let of = |value| origin(&run(&[("kubernetes.io/config.seen", value)])).map(|o| o.seen_us);
        assert_eq!(of("2025-06-15T17:06:40+02:00"), Some(1_750_000_000_000_000));
        assert_eq!(
            of("2025-06-15T10:06:40.5-05:00"),
            Some(1_750_000_000_500_000)
        );
        for nonsense in [
            "",
            "yesterday",
            "1750000000",
            "2025-06-15",
            "1914-06-28T00:00:00Z",
        ] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
        assert_eq!(of(&"2".repeat(100_000)), None);
    }

    fn create(annotations: &[(&str, &str)]) -> Vec<u8> {
        let config = v1::ContainerConfig {
            working_dir: GRACE.into(),
            annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            config: Some(config),
            ..Default::default()
        };
        request.encode_to_vec()
    }

    const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

    #[test]
    fn the_grace_period_of_a_pod_is_read_and_nothing_else() {
        let of = |annotations: &[_]| grace_period(&create(annotations));
        let hash = ("io.kubernetes.container.hash", "31");
        assert_eq!(of(&[hash, (GRACE, "30")]), Some(30));
        assert_eq!(of(&[(GRACE, "0")]), Some(0));
        assert_eq!(of(&[hash]), None);
        for nonsense in ["", "-1", "+30", "30s", "1e3", "99999999999", "hunter2"] {
            assert_eq!(of(&[(GRACE, nonsense)]), None, "{nonsense}");
        }
        assert_eq!(of(&[(GRACE, &"3".repeat(100_000))]), None);
        let whole = create(&[(GRACE, "30")]);
        for end in 0..whole.len() {
            assert_eq!(grace_period(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_broken_message_says_nothing() {
        let whole = run(&[("kubernetes.io/config.seen", "2025-06-15T15:06:40Z")]);
        for end in 0..whole.len() {
            let _ = origin(&whole[..end]);
        }
        assert_eq!(origin(b"\x0a\xff\xff\xff\xff\xff"), None);
        assert_eq!(origin(b"\xff\xff"), None);
    }
}
