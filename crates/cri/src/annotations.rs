//! The annotations that are read. With RunPodSandbox the kubelet sends when it saw a pod first, and from where; with
//! CreateContainer the grace period of the pod, the ports of the container and the handler of its preStop hook. Only times,
//! numbers and words of fixed lists leave this module; keys and values of annotations are compared where they lie and never
//! copied.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::container_request::HookHandler;
use crate::serde_by_name;

/// The time at which the kubelet first saw the pod in its configuration, RFC 3339 with nanoseconds. A kubelet that was
/// restarted sees all pods anew.
const SEEN: &[u8] = b"kubernetes.io/config.seen";
/// Where the pod comes from.
const SOURCE: &[u8] = b"kubernetes.io/config.source";

/// The pod's `terminationGracePeriodSeconds`.
const GRACE_PERIOD: &[u8] = b"io.kubernetes.pod.terminationGracePeriod";
/// The ports of the container, as JSON.
const PORTS: &[u8] = b"io.kubernetes.container.ports";
/// The preStop hook of the container, as JSON.
const PRE_STOP: &[u8] = b"io.kubernetes.container.preStopHandler";

/// Longest value that is parsed: a time with nanoseconds and an offset takes 35 bytes.
const LONGEST: usize = 64;
/// How much of the ports of a container is read, in bytes. One port takes about 60.
const MAX_PORTS_LEN: usize = 8 << 10;

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

/// The origin of the pod in a request that has the configuration of its sandbox in this field; `None` if the request does not say when the
/// pod was seen.
pub(super) fn origin(request: &[u8], config_field: u32) -> Option<PodOrigin> {
    let mut seen = None;
    let mut source = ConfigSource::Unknown;
    for config in fields(request, config_field) {
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

/// What the annotations of a container say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerAnnotations {
    /// The grace period of the pod, in seconds.
    pub(super) pod_grace: Option<u32>,
    /// The lowest port that the container declares.
    pub(super) lowest_port: Option<u16>,
    pub(super) pre_stop: Option<HookHandler>,
}

impl ContainerAnnotations {
    /// Reads the annotations of a ContainerConfig.
    pub(super) fn read(config: &[u8]) -> Self {
        let mut found = Self::default();
        for entry in fields(config, 10) {
            let (Some(key), Some(value)) = (fields(entry, 1).last(), fields(entry, 2).last())
            else {
                continue;
            };
            match key {
                GRACE_PERIOD => found.pod_grace = number(value),
                PORTS => found.lowest_port = lowest_port(value),
                PRE_STOP => found.pre_stop = hook_handler(value),
                _ => {}
            }
        }
        found
    }
}

/// A number of at most ten digits.
fn number<T: FromStr>(value: &[u8]) -> Option<T> {
    let is_number = (1..=10).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The lowest number behind `"containerPort":` in the JSON of a container's ports.
fn lowest_port(ports: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(ports.get(..ports.len().min(MAX_PORTS_LEN))?).ok()?;
    let parts = text.split("\"containerPort\":").skip(1);
    let ports = parts.filter_map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit())?;
        number(&part.as_bytes()[..end])
    });
    ports.min()
}

/// The handler in the JSON of a hook, which has one.
fn hook_handler(hook: &[u8]) -> Option<HookHandler> {
    let handlers = [
        (&b"{\"exec\":"[..], HookHandler::Exec),
        (b"{\"httpGet\":", HookHandler::HttpGet),
        (b"{\"tcpSocket\":", HookHandler::TcpSocket),
        (b"{\"sleep\":", HookHandler::Sleep),
    ];
    let found = handlers.iter().find(|(begin, _)| hook.starts_with(begin));
    found.map(|(_, handler)| *handler)
}

/// The length-delimited fields with this number, until the message ends or does not decode.
pub(super) fn fields(mut message: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
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
        let of = |annotations: &[_]| origin(&run(annotations), 1);
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
        let of =
            |value| origin(&run(&[("kubernetes.io/config.seen", value)]), 1).map(|o| o.seen_us);
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

    fn container(annotations: &[(&str, &str)]) -> Vec<u8> {
        let config = v1::ContainerConfig {
            working_dir: GRACE.into(),
            annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Default::default()
        };
        config.encode_to_vec()
    }

    const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

    #[test]
    fn the_grace_period_of_a_pod_is_read_and_nothing_else() {
        let of = |annotations: &[_]| ContainerAnnotations::read(&container(annotations)).pod_grace;
        let hash = ("io.kubernetes.container.hash", "31");
        assert_eq!(of(&[hash, (GRACE, "30")]), Some(30));
        assert_eq!(of(&[(GRACE, "0")]), Some(0));
        assert_eq!(of(&[hash]), None);
        for nonsense in ["", "-1", "+30", "30s", "1e3", "99999999999", "hunter2"] {
            assert_eq!(of(&[(GRACE, nonsense)]), None, "{nonsense}");
        }
        assert_eq!(of(&[(GRACE, &"3".repeat(100_000))]), None);
        let whole = container(&[(GRACE, "30")]);
        for end in 0..whole.len() {
            assert_eq!(ContainerAnnotations::read(&whole[..end]).pod_grace, None);
        }
    }

    #[test]
    fn ports_and_hooks_of_a_container_are_read() {
        let ports =
            r#"[{"name":"web","containerPort":8080,"protocol":"TCP"},{"containerPort":80}]"#;
        let hook = r#"{"sleep":{"seconds":5}}"#;
        let found = ContainerAnnotations::read(&container(&[
            ("io.kubernetes.container.ports", ports),
            ("io.kubernetes.container.preStopHandler", hook),
        ]));
        let lowest_port = Some(80);
        let pre_stop = Some(HookHandler::Sleep);
        let expected = ContainerAnnotations {
            pod_grace: None,
            lowest_port,
            pre_stop,
        };
        assert_eq!(found, expected);
        for nonsense in [
            "",
            "[]",
            "\"containerPort\":",
            "\"containerPort\":99999}",
            "hunter2",
        ] {
            let annotations = container(&[
                ("io.kubernetes.container.ports", nonsense),
                ("io.kubernetes.container.preStopHandler", nonsense),
            ]);
            let found = ContainerAnnotations::read(&annotations);
            assert_eq!(found, ContainerAnnotations::default(), "{nonsense}");
        }
    }

    #[test]
    fn a_broken_message_says_nothing() {
        let whole = run(&[("kubernetes.io/config.seen", "2025-06-15T15:06:40Z")]);
        for end in 0..whole.len() {
            let _ = origin(&whole[..end], 1);
        }
        assert_eq!(origin(b"\x0a\xff\xff\xff\xff\xff", 1), None);
        assert_eq!(origin(b"\xff\xff", 1), None);
    }
}
